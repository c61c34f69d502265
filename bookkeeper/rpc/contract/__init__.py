"""The wire contract: ``bookkeeper.thrift`` and the same in Python.

``messages``, ``offer_messages`` and ``origin_messages`` define the structs, ``structs`` lists them, ``schema`` binds
them to the Thrift file, ``services`` has the methods, ``faults`` encodes and decodes errors.
"""
