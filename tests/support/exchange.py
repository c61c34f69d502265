"""Directories that clusters of tests may read and write: their own, and those of a test."""

from __future__ import annotations

import tempfile

EXCHANGE: dict[str, object] = {"files.roots": ["exchange", tempfile.gettempdir()]}
"""Overrides of the settings."""
