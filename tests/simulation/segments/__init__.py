"""``python -m tests.simulation.segments``: the machine of replicas, step by step or by seeds."""
