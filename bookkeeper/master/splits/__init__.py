"""Rules of splits and merges, all pure.

``split_rules`` computes the writes of a change and their order; ``split_plan`` chooses the tablets that an operation
splits next; ``due_splits`` chooses the tablets that the master splits by itself; ``merge_places`` decides whether
tablets with replicas are together, so that they may merge. The operation itself is
:mod:`bookkeeper.master.operations.split_merge`.
"""
