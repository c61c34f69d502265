"""What goes wrong with one tablet stays with that tablet: its tserver serves the others, and people are told.

Arrives: work on a tablet that may raise anything. Leaves: a declared error that names the tablet. A thread or a call
that gets one goes on with other tablets; an undeclared error ends the process, as it must where nobody can say what it
concerns. Survives a crash: nothing; what is wrong is found again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from bookkeeper.errors import BookkeeperError, CorruptionError
from bookkeeper.model import Extent

LOG = logging.getLogger(__name__)

REASON_MAX = 200
"""Characters of an undeclared error that go into a message."""


@contextmanager
def contained(extent: Extent, what: str) -> Iterator[None]:
    """Turn an undeclared error of ``what`` (a noun: a flush, a load) of one tablet into a CorruptionError: it comes of
    the tablet's files or books, and comes again unless these change.
    """
    try:
        yield
    except BookkeeperError:
        raise
    except Exception as error:
        LOG.exception("%s of tablet %s failed unexpectedly", what, extent)
        raise undeclared(extent, what, error) from error


def undeclared(extent: Extent, what: str, error: Exception) -> BaseException:
    """What an error becomes that nobody foresaw."""
    return CorruptionError(
        f"{what} of tablet {extent} failed unexpectedly ({type(error).__name__}: {str(error)[:REASON_MAX]}); the log "
        "of its tserver says more; restore its files or books from a copy, or copy the table from a peer"
    )
