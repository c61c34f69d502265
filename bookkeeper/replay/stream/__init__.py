"""Shipping one range of a log to one peer, inside a task.

``range_shipping`` decides how a range is shipped. ``block_stream`` sends blocks: ``filters`` keeps the records of the
target, ``message_span`` cuts messages, ``message_origins`` says where records come from. ``segment_transfer`` sends
whole segments of an import instead.
"""
