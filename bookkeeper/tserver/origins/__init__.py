"""The memory of several paths (rule R22). A reader who replicates along one path may skip this room.

``origin_dedup`` finds the records of a message that no other path has brought; ``partial_high_water`` is for tablets
that were merged, whose rows hold different amounts of a stream (rule R19); ``origin_marks`` writes ``~root_`` rows.
"""
