"""Programs of HBase that run here as child processes.

- ``java`` finds the Java and the jars; ``hbase_process`` is a whole HBase in one process, for tests and demos;
- ``books_table`` makes and checks the table of the books in an HBase cluster;
- ``gateway`` is the host's own Thrift gateway to an HBase cluster, ``gateway_watch`` keeps it running and ends it when
  it stands still.
"""
