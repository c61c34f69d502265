"""Replay: ships ranges of WALs to peers inside Spark tasks.

In the order of a range: ``service`` takes it (``process`` runs the service), ``slots`` limits the running jobs,
``spark`` makes a job, ``stream`` ships inside a task, ``progress`` and ``journal`` record the shipped ranges.
``ranges`` has the descriptors and results, ``last_words`` what the process tells the master. The journal is for
people: the caller writes a peer's acknowledgement to the books, and the receiver drops duplicates.
"""
