"""Fixtures of the contract tests."""

from tests.support.metadata_stores import store, table

__all__ = ["store", "table"]
