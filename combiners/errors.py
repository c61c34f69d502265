"""The errors of the combiners. They have their own base, because this package imports nothing of the project."""

from __future__ import annotations


class CombinerError(Exception):
    """Base of all errors raised by ``combiners``."""


class StatusError(CombinerError):
    """A change contradicts its status. The caller is wrong, and a retry does not help."""
