"""The wire contract: ``bookkeeper.thrift`` and the same in Python.

``messages`` and the other modules ``*_messages`` define the structs, ``structs`` lists them, ``schema`` binds
them to the Thrift file, ``services`` has the methods, ``faults`` encodes and decodes errors.
"""
