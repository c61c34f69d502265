"""Errors on the wire: a server encodes an error as a Fault, and the caller raises the same class.

The code of a class (:mod:`bookkeeper.errors`) identifies it. An unknown code becomes TransientError or PermanentError,
with the code in ``details``.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from bookkeeper import errors
from bookkeeper.errors import BookkeeperError, OtherInstanceError, PermanentError, RefusedError, TransientError
from bookkeeper.rpc.contract.messages import Fault
from bookkeeper.runtime.log_lines import plain_text

INTERNAL_CODE = "internal"
"""Code of an unexpected failure; the log of the server has the traceback."""

DETAILS_MAX = 32
"""Details that a caller takes. The server chooses them and all texts, it may be another cluster's, and they come into
status, logs and terminals: see ``plain_text``.
"""


def _subclasses(cls: type[BookkeeperError]) -> Iterator[type[BookkeeperError]]:
    yield cls
    for subclass in cls.__subclasses__():
        yield from _subclasses(subclass)


ERRORS_BY_CODE = {cls.code: cls for cls in _subclasses(BookkeeperError) if cls.__module__ == errors.__name__}


def to_fault(error: BookkeeperError) -> Fault:
    """The Fault of an error."""
    return Fault(isinstance(error, TransientError), error.code, error.message, error.details or None)


def internal_fault(error: BaseException, where: str) -> Fault:
    """The Fault of an unexpected error; its text is short, because the traceback is in the log."""
    return Fault(False, INTERNAL_CODE, f"{where} failed unexpectedly ({type(error).__name__}); its log says more")


def from_fault(fault: Fault) -> BookkeeperError:
    """The error to raise at the caller."""
    cls = ERRORS_BY_CODE.get(fault.code)
    given = itertools.islice((fault.details or {}).items(), DETAILS_MAX)
    details = {plain_text(name): plain_text(value) for name, value in given}
    kind: type[BookkeeperError] = TransientError if fault.transient_ else PermanentError
    if cls is None or not issubclass(cls, kind):  # the base of both is an answer, too, and nobody would catch it
        cls = kind
        details.setdefault("code", plain_text(fault.code))
    return cls(plain_text(fault.message), details)


def from_refusal(code: str, text: str, details: dict[str, str]) -> BookkeeperError:
    """The error that a refused handshake raises at the caller; an unknown code becomes PermanentError. A server that is
    another instance than the called one names its own.
    """
    cls = ERRORS_BY_CODE.get(code)
    if cls is RefusedError and "instance_id" in details:
        cls = OtherInstanceError
    return (cls if cls is not None and issubclass(cls, PermanentError) else PermanentError)(text, details)
