"""Replica systems: what a peer must promise, which kinds there are, and how each is spoken to.

Arrives: messages made of whole blocks or of what a filter left of them. Leaves: acknowledgements of what is
durable at the peer. Nothing here survives a crash: a session is opened again and a message is sent again.
"""
