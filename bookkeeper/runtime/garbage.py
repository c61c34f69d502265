"""Python's collector of cyclic garbage, and work that makes many objects which stay."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collections() -> Iterator[None]:
    """No collection in this process while the block runs, for work of seconds that makes no cycles. Each collection
    would look at all that stays, again and again; reference counts free the rest as ever.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:  # by this block's own thread, when several blocks overlap
            gc.enable()
