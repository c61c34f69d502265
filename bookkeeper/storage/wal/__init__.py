"""Write-ahead logs: blocks of records in files, range reads, recovery.

Rooms: ``blocks`` (the bytes), ``writing`` (from drafts to a sync and a seal), ``reading`` (ranges, tools, recovery).
All of them reach files through a Volume (``bookkeeper.storage.volume``). A log keeps every block whose sync was
acknowledged, up to its seal.
"""
