"""The monitor: what a master knows, as JSON, as Prometheus metrics and as pages. It only ever reads.

It knows nothing of the master but what :class:`~bookkeeper.monitor.observation.Source` hands out.
"""
