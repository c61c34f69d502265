"""The client of a cluster: :class:`Client`, and the classes that its methods take and return."""

from bookkeeper.client.batch_writer import BatchWriter, WriterOptions
from bookkeeper.client.client import Client
from bookkeeper.client.conditional_writer import absent, equals
from bookkeeper.client.host_admin import Hosts
from bookkeeper.client.mutation import Mutation
from bookkeeper.client.replication_admin import Replication
from bookkeeper.client.scanner import Cell, Scanner, ScanRange
from bookkeeper.client.table_admin import Tables
from bookkeeper.client.user_admin import Users

__all__ = [
    "BatchWriter",
    "Cell",
    "Client",
    "Hosts",
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
