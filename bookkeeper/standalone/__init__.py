"""The hosts of a cluster on one machine: their directories, and a supervisor of their processes.

- ``directory`` makes the directory of a cluster and completes it at each start; ``joining`` makes further hosts;
  ``books`` makes and checks the stores, ``durable_stores`` repairs them under the ``stores_lock``, ``file_birth``
  tells a restored directory from the one before;
- ``foreground`` is ``bookkeeper standalone``: a ``supervisor`` of the processes, and the threads ``readiness``,
  ``fencing`` and ``space``; ``children`` has how the supervisor starts the processes and ends them with itself;
- ``cluster_process`` runs a cluster as a child process; ``ports`` finds free ports;
- ``hbase`` has the programs of HBase that run here, among them the host's own gateway to the books.
"""
