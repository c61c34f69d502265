"""Replication bookkeeping for tables split into tablets."""
