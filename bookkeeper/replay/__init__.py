"""Replay: ships ranges of WALs to peers inside Spark tasks.

Arrives: range descriptors (Arrow). Leaves: blocks, through a replica system, to a peer; and one result row per range.
Survives a crash: the record of what was shipped, which is for people. Nothing else has to: what a peer acknowledged is
written to the books by the caller, and what is sent twice is dropped by the receiver. Reading order: ``ranges``,
``filters``, ``stream``, ``shipping``, ``job``, ``session``, ``daemon``, ``slots``, ``journal``, ``service``. Only
``job``, ``session`` and ``daemon`` know Spark.
"""
