"""The tserver: takes writes, keeps tablets and logs, receives from other clusters, ships through its worker.

Arrives: writes and scans of clients, orders of the master, replicated ranges of other clusters. Leaves: durable
acknowledgements, WALs, segments, the tserver's side of the books. Survives a crash: WALs up to their last synced
block, segments, and the cells of the metadata table; the next holder of a tablet recovers it from those.

Reading order, decisions first (values in, decisions or mutations out, no IO): ``receiving``, ``ordering``,
``stamps``, ``books``, ``loading``. Then what executes them: ``door``, ``tablet`` and ``commit`` for writes;
``log_keeper``, ``flusher`` and ``loader`` for the books, segments and moves; ``streams``, ``receiver`` and
``received_index`` for other clusters; ``configuration``; ``service`` and ``process`` tie it together. ``worker`` is
the sending side.
"""
