"""Where clusters of tests reach files: in their own directory, and wherever a test makes its own."""

from __future__ import annotations

import tempfile

EXCHANGE: dict[str, object] = {"files.roots": ["exchange", tempfile.gettempdir()]}
"""Overrides of the settings."""
