"""Hosts, books, logs and a network for the machine of replicas, driven by named steps."""
