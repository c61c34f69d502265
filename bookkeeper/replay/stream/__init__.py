"""Shipping one range of a log to one peer, inside a task.

``range_shipping`` decides how a range is shipped. ``block_stream`` sends blocks: ``filters`` selects the records of the
target, ``message_span`` cuts messages, ``message_origins`` adds the origins of records. ``segment_transfer`` sends the
segments of an import instead. ``range_logs`` is the Volume of a task, also for logs on hosts' disks.
``steps`` tells the watch over the process that the task gets on.
"""
