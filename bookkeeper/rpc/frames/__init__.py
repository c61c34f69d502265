"""Encodes calls as bytes and decodes them.

``wire`` encodes values, ``envelope`` makes a message of a call, ``frame_tags`` protects frames without TLS,
``partial_frame`` collects a frame while its bytes arrive, ``budget`` and ``call_sizes`` limit the memory of frames,
``transport`` reads and writes sockets.
"""
