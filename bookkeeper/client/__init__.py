"""The client of a cluster: :class:`Client` and what it gives out."""

from bookkeeper.client.client import Client
from bookkeeper.client.conditional import absent, equals
from bookkeeper.client.mutation import Mutation
from bookkeeper.client.replication import Replication
from bookkeeper.client.scanner import Cell, Scanner, ScanRange
from bookkeeper.client.tables import Tables
from bookkeeper.client.users import Users
from bookkeeper.client.writer import BatchWriter, WriterOptions

__all__ = [
    "BatchWriter",
    "Cell",
    "Client",
    "Mutation",
    "Replication",
    "ScanRange",
    "Scanner",
    "Tables",
    "Users",
    "WriterOptions",
    "absent",
    "equals",
]
