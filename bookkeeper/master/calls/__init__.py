"""Calls that a master makes: of its tservers (``tservers``), of other clusters (``peer_masters``).

``keyed_executors`` runs them in one thread for each destination, so that a slow one delays no other.
"""
