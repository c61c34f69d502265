"""What lies on disk: logs (``wal``) and segments. Knows files and Arrow, neither tables nor clusters."""
