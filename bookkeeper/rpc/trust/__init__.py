"""Authentication and authorization of callers.

``handshake`` has the messages of both sides before the first call, ``admission`` is the server's side of it, ``rights``
has the methods that the holder of a secret may call, ``table_rights`` the tables that a peer may replicate to.
"""
