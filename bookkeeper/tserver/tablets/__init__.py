"""The state of a tablet that this tserver serves.

``tablet`` joins the parts, ``tablet_registry`` has all served tablets. Each part of the state has one owner:
``write_state`` (numbers and log of the next record; ``wal_order`` has its rule, R24), ``received_state`` (progress in
other clusters' logs; ``origin_intervals`` for several paths, R22), ``tablet_flushes`` (the flush state in the books;
``flushed_logs`` for the logs that its segments have), ``given_up`` (the logs that it is served without, N6).
``load_plan`` decides what a loading tablet lacks, ``tablet_segments`` which cells of its row name segments,
``block_targets`` which targets each block carries (R5).
"""
