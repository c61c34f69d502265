"""Replay: ships ranges of WALs to peers inside Spark tasks.

In the order of a range: ``service`` takes it (``process`` runs the service), ``slots`` bounds the jobs under way,
``spark`` makes a job, ``stream`` ships inside a task, ``progress`` and ``journal`` say what was shipped. ``ranges`` has
the descriptors and results. The journal is for people: a peer's acknowledgement goes to the books through the caller,
and the receiver drops records that are sent twice.
"""
