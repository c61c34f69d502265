"""Errors of the combiners: a base of their own, because this room imports nothing of the project."""

from __future__ import annotations


class CombinerError(Exception):
    """Base of all errors raised by ``combiners``."""


class StatusError(CombinerError):
    """A change contradicts the status it is applied to. The caller has an error; trying again does not help."""
