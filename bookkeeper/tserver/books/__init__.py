"""The tserver's cells in the metadata table.

``wal_cells`` decides which cells follow from the life of a WAL (pure); ``wal_bookkeeper`` writes them: first uses
before an acknowledgement, the others soon after. ``received_index`` writes ``~recv_``: the offset up to which each
stream was received.
"""
