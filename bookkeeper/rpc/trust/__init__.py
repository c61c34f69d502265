"""Who may come in, and what they may do.

``handshake`` is what both sides say before the first call, ``admission`` the server's side of it; ``rights`` says what
the holder of a secret may call, ``table_rights`` which tables a peer may replicate to.
"""
