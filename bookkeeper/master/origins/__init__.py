"""The end of the memory of several paths (rule R22). A reader who replicates along one path may skip this room.

A cluster that receives records on several paths remembers where they were first written. ``origin_index`` says which
other clusters' logs each log may hand on; ``origin_books`` reads and writes ``~root_`` rows; ``origin_service`` answers
other clusters; ``origin_termination`` decides when nothing of a log is under way anywhere (pure); ``origin_gc`` keeps
the rows and starts the end; ``end_origins`` are the two operations that carry it out.
"""
