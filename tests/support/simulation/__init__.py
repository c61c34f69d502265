"""Clusters in one thread: the real processes' code over a simulated disk, network, clock, books and scheduler.

Arrives: schedules, drawn or directed. Leaves: a world whose laws are checked after each step. Nothing here decides
anything that the product decides: ``patches`` replaces the edges (threads, sockets, time, the disk below a WAL, the
metadata store, sessions), everything above them is the product's own.
"""
