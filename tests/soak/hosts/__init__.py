"""Rounds on two clusters of three hosts each: plan, faults and operations, and the look at disks, logs and books."""
