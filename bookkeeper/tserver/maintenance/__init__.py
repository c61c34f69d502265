"""Maintenance of served tablets: loads and unloads, sorting, flushes, compactions.

``loader`` loads and unloads tablets, ``tablet_opener`` opens one from its row, and ``sealed_logs`` finds its blocks in
sealed logs; ``tail_merger`` brings the records of logs that were given up. ``sorter`` sorts memtables,
``flush_schedule`` chooses those that are due, ``flusher`` writes them as segments, ``compactor`` merges segments, and
``tablet_states`` makes the result of both the tablet's state and lets logs go; ``late_uses`` ends
uses that came late. ``tablet_books`` reads and writes the tablets' rows, and ``containment`` keeps the failure of one
tablet from the others. ``stale_reads`` reads replicas that another host leads.
"""
