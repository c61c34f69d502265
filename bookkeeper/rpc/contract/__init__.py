"""The wire contract: ``bookkeeper.thrift`` and the same in Python.

``messages``, ``offer_messages`` and ``origin_messages`` are the structs, ``structs`` lists them, ``schema`` binds them
to the Thrift file, ``services`` are the methods, ``faults`` turns errors into messages and back.
"""
