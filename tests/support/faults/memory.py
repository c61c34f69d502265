"""The memory of switches whose function wrongly remembers earlier calls; it is empty whenever a switch is turned."""

from __future__ import annotations

from typing import Any

REMEMBERED: dict[str, Any] = {}
