"""Calls that a master makes: to its tservers (``tservers``) and to other clusters (``peer_masters``).

``keyed_executors`` runs them in one thread for each destination, so that a slow one delays no other; ``tserver_calls``
joins both for calls to tservers. ``process_watch`` knows which processes of this cluster work.
"""
