"""Shared secrets: their files (``secret``), a cluster's (``store``), who shows and asks for which (``access``)."""
