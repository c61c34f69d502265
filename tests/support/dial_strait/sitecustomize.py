"""Lets a process of a test dial a strait in place of the host behind it (see ``tests/support/strait.py``).

Python imports this by its name as an interpreter starts, as ``PYTHONPATH`` leads to this directory; so the Python
processes of Spark have it, too.
"""

from __future__ import annotations

import os
import socket
from typing import Any

_STRAITS = dict(pair.split("=") for pair in os.environ.get("BOOKKEEPER_TEST_STRAITS", "").split(",") if pair)
_connect = socket.create_connection


def _through(address: tuple[str, int], *arguments: Any, **named: Any) -> socket.socket:
    host, port = address
    return _connect((_STRAITS.get(host, host), port), *arguments, **named)


if _STRAITS:
    socket.create_connection = _through  # type: ignore[assignment]
