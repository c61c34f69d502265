"""From calls to bytes and back.

``wire`` encodes values, ``large_values`` keeps large ones apart, ``envelope`` makes a message of a call, ``frame_tags``
protects it without TLS, ``partial_frame`` holds a frame whose bytes arrive, ``budget`` and ``call_sizes`` bound what
that may take, ``transport`` reads and writes sockets.
"""
