"""The settings of one cluster in ``bookkeeper.toml``: defined in ``sections`` and ``processes``, read by ``file``."""
