"""Clusters under random faults, round after round: ``python -m tests.soak --rounds N --seed S``."""
