"""Writes the Python modules of the wire contract from ``bookkeeper.thrift``; ``make contract`` runs it.

``idl`` reads the part of Thrift that the contract uses, with its comments and annotations; ``python_code`` makes the
modules of it. Their text depends on the contract alone, and a test finds modules that are older than the contract.
"""
