"""The Volume: files by name, behind one protocol.

``names`` checks names. ``volume_protocol`` has the promises, ``local_volume`` keeps them in a directory with the system
calls of ``file_ops``, and reads through ``sources``; ``opening`` opens the cluster's. ``given_files`` reads files that
operators name by a URI (``file_uris``); ``given_directory`` reads and writes their directories of imports and exports.
"""
