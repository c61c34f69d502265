"""A wall clock that a test sets, for real processes: ``SET_CLOCK`` in PYTHONPATH, see ``sitecustomize.py`` there."""

from pathlib import Path

SET_CLOCK = Path(__file__).parent
