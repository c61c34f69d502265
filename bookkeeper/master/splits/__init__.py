"""Rules of splits and merges, all pure.

``split_rules`` computes the writes of a change and their order; ``split_plan`` chooses the tablets that an operation
splits next. The operation itself is :mod:`bookkeeper.master.operations.split_merge`.
"""
