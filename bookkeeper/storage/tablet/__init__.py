"""A tablet's data: memtable, segments, scans, flushes and compactions.

In the order of the data: ``batch_routing`` checks a batch and divides it by tablets, ``memtable`` keeps committed
entries, ``flush`` writes them as a segment, ``compaction`` chooses segments to merge; ``tablet_data`` ties them
together. Rooms below: ``sorting`` (order of entries), ``segments`` (files), ``scans`` (pages).
"""
