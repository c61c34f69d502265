"""The removal of origins that no path needs any more (rule R22). A cluster with one path does not need this package.

A cluster that receives records on several paths stores their *origins*: the logs in which they were first written.
``origin_parts`` is the entrance. ``origin_index`` finds the root logs whose records each log may forward;
``origin_books`` reads and writes ``~root_`` rows; ``origin_service`` answers other clusters; ``origin_termination``
decides when no record of a root log is under way anywhere (pure); ``origin_gc`` keeps the rows and starts the removal;
``end_origins`` has its two operations.
"""
