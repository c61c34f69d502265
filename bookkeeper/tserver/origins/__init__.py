"""Several paths from one origin (R22). Skip this room if you replicate along one path.

``origin_dedup`` finds the records of a message that no other path has brought; ``partial_high_water`` is for tablets
that were merged, whose rows have different amounts of a stream (R19); ``origin_marks`` writes ``~root_`` rows.
``tail_plan`` finds the records of a given-up log that its tablet lacks (N6).
"""
