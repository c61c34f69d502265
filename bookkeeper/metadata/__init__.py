"""The metadata table: the books of one cluster, in HBase or in one SQLite file.

``metadata_table`` is the protocol; it explains why a cell's timestamp is a rank. ``chosen_rows`` reads many
rows at once. ``keys`` has the names of cells,
``values`` their content (``origin_intervals_json``), ``lost_logs`` the facts about logs that tablets are served
without. ``metadata_limits`` checks arguments, ``owner`` marks a table as one cluster's, ``flight`` limits the time of a
write in flight. ``opening`` opens one of two stores, ``hbase`` or ``sqlite``; both pass one contract suite.
"""
