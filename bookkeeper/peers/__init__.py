"""Replica systems: what a peer guarantees (``protocol``), which kinds there are (``registry``), and one module or
package for each kind.

Arrives: messages made of whole blocks, or of the records that a filter left. Leaves: acknowledgements of what is
durable at the peer. Nothing here survives a crash: a session is opened again and a message is sent again.
"""
