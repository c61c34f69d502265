"""Calls between processes: Thrift messages in frames over TCP, with or without TLS.

The rooms, lowest first: ``contract`` defines structs and methods; ``frames`` encodes calls within memory limits;
``trust`` authenticates and authorizes callers. A caller uses ``rpc_pool``, with one ``channel`` for each connection and
``address`` for addresses. A server is ``rpc_server``, with one ``connection`` for each socket; ``dispatch`` runs calls.
"""
