"""The state of a tablet that this tserver serves.

``tablet`` is that state, ``tablet_registry`` all of them. ``load_plan`` says what a loading tablet still lacks,
``flushed_logs`` which logs its segments hold already, ``tablet_segments`` which cells of its row name segments.
``wal_order`` is what must be at a peer before records of the next log (rule R24), ``block_targets`` what each block
says of the configuration (rule R5), ``origin_intervals`` what the tablet holds of other clusters' logs (rule R22).
"""
