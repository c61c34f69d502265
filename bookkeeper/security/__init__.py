"""Security of a cluster: secrets, TLS, file permissions, and the directories that clients may name.

``secret`` is one secret and its file, ``secret_store`` are all secrets of a cluster. ``access`` makes the checks of
servers and the credentials of callers from them; ``viewers`` does it for the monitor. ``tls`` and ``exposure`` protect
the network, ``private_files`` and ``file_roots`` the files.
"""
