"""A failure of one tablet stays with that tablet: its tserver serves the others, and reports the problem.

Work on a tablet may raise any error; :func:`contained` makes it a declared error that names the tablet. A thread or a
call that gets a declared error goes on with other tablets. Elsewhere an undeclared error ends the process, because it
may concern all of it.
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
def contained(extent: Extent, work: str) -> Iterator[None]:
    """Turn an undeclared error of ``work`` (a noun: a flush, a load) of one tablet into a CorruptionError. Its cause is
    in the tablet's files or books, and it comes again until these change.
    """
    try:
        yield
    except BookkeeperError:
        raise
    except Exception as error:
        LOG.exception("%s of tablet %s failed unexpectedly", work, extent)
        raise CorruptionError(
            f"{work} of tablet {extent} failed unexpectedly ({type(error).__name__}: {str(error)[:REASON_MAX]}); the "
            "log of its tserver says more; restore its files or books from a copy, or copy the table from a peer"
        ) from error
