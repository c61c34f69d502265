"""The tserver's cells in the metadata table.

``wal_cells`` says which cells follow from the life of a WAL (pure); ``wal_bookkeeper`` writes them: first uses before
an acknowledgement, the rest soon after. ``received_index`` writes ``~recv_``: how far each stream was received.
"""
