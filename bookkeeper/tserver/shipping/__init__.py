"""The replication worker: ships ranges that the master assigned.

``worker`` holds one ``worker_lane`` for each peer; ``worker_plan`` decides what a lane ships next and what an outcome
means (pure); ``worker_books`` writes the finished side of the books.
"""
