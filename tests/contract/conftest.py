"""What the contract tests share."""

from tests.support.metadata_stores import store, table

__all__ = ["store", "table"]
