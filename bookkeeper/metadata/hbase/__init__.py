"""The metadata table in HBase, over its Thrift gateway.

In the order of a call: ``hbase_store`` (the protocol of :mod:`bookkeeper.metadata.metadata_table`), ``hbase_table``
(creates and checks the table), ``hbase_cells`` (names of columns), ``hbase_calls`` (retries and time-outs) and
``hbase_pool``, the only module that imports happybase.
"""
