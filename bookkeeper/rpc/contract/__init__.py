"""The wire contract: ``bookkeeper.thrift`` and the same in Python.

``make contract`` writes ``messages`` (structs), ``services`` (Protocols) and ``tables`` (fields, methods, rights and
sizes) from the Thrift file; nothing reads that file at a start. ``specs`` is the form of the tables, ``faults`` encodes
and decodes errors.
"""
