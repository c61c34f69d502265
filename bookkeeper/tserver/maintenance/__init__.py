"""What happens to served tablets beside reads and writes.

``loader`` loads and unloads; ``sealed_logs`` finds each tablet's blocks in a dead tserver's log; ``sorter`` sorts
memtables; ``flusher`` writes segments and lets logs go; ``compactor`` merges segments; ``containment`` keeps the
failure of one tablet from the others.
"""
