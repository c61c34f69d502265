"""The replication worker: ships ranges that the master assigned, and the logs of its own session by itself.

``worker`` holds one ``worker_lane`` for each peer; ``worker_plan`` decides what a lane ships next and what an outcome
means (pure); ``worker_books`` writes the finished side of the books. ``open_streams`` has the streams that a lane
ships by itself; ``own_log`` knows the ends and the barriers of the own logs, and ``extension`` decides how far they
may go (pure).
"""
