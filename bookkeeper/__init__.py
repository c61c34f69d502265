"""Replication bookkeeping for tables split into tablets.

Comments cite rules (R1 to R24) and laws (L1 to L8) by number: docs/design/rules.md has them.
"""
