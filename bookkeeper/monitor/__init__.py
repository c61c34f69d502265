"""The monitor: a read-only view of a master and its cluster, as JSON, as Prometheus metrics and as pages.

It reads the master through :class:`~bookkeeper.monitor.observation.Source` only. The modules in the order in which the
data passes them: ``observation`` (values), ``sampler`` and ``lag_history`` (the latest sample and the plots),
``replica_sampler`` (hosts and replicas, while somebody looks at them), ``views`` and ``replica_views`` (plain values
for JSON and templates), ``app``, ``pages`` and ``metrics`` (answers), ``auth_middleware`` (the token),
``connection_limiter`` and ``web_server`` (sockets and threads).
"""
