"""Calls between processes: the wire contract (bookkeeper.thrift), a server, and a pool of client connections."""
