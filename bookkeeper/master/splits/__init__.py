"""Rules of splits and merges, all pure.

``split_rules`` says which tablets change and what is written of them, in which order; ``split_plan`` says which
tablets an operation splits next. The operation itself is :mod:`bookkeeper.master.operations.split_merge`.
"""
