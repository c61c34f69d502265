"""The write path: from a request to a submission, and from the commit threads to an answer.

In the order of the data: ``request_decoder`` decodes records and parts them by tablet, within the bounds of
``decompression``. ``commit_path`` submits to the room ``commit`` and waits. The submissions: ``client_write``,
``conditional_write`` and ``control_submissions``; those of other clusters' messages are in the room ``receive``. They
run under the ``write_context``: ``write_guards`` refuse, ``request_dedup`` recognises late attempts, ``configuration``
and ``config_barrier`` keep the configuration the same for a group.
"""
