"""What all tests share."""

from tests.support.fixtures import hbase

__all__ = ["hbase"]
