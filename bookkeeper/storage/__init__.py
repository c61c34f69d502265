"""Storage: logs (``wal``), and the records of tablets in memory and in segments (``tablet``)."""
