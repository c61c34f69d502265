"""The coordination store in a ZooKeeper ensemble, for hosts on several machines.

- ``url`` reads ``zk://HOST:PORT,.../ROOT``, ``access`` what the settings say besides; ``ensemble`` is the connection:
  reads behind a sync, and changes of several nodes at once, each within a time limit;
- ``layout`` has the names and the contents of the nodes; ``lives`` decides which sessions are dead;
- ``zookeeper_session`` renews the lease of this process; ``zookeeper`` is the store.
"""
