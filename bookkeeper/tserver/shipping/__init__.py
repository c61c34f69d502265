"""The replication worker: ships ranges that the master assigned, and the logs of its own session by itself.

``worker`` holds one ``worker_lane`` for each peer; ``worker_plan`` decides what a lane ships next and what an outcome
means (pure). ``lane_books`` does all with the books, in a thread beside the lane; ``worker_books`` has their finished
side. ``open_streams`` has the streams that a lane ships by itself, and ``follower`` brings them to a task that stays;
``own_log`` knows the ends and the barriers of the own logs, and ``extension`` decides how far they may go (pure).
"""
