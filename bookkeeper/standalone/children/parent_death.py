"""The command line of a child process that does not outlive its parent, even when SIGKILL ends the parent."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

PARENT_STILL_LIVES = '[ "$PPID" = "$0" ] && exec "$@"'
"""A parent that dies before ``setpriv`` requests the signal causes none, so the child then checks its parent's pid."""


def ended_with_parent(command: Sequence[str], number: signal.Signals) -> list[str]:
    """``command`` as a child of this process that gets signal ``number`` when the thread that starts it ends.

    The command does not run at all when this process has ended before the signal is set up (``prctl``, Linux).
    """
    name = number.name.removeprefix("SIG")
    return ["setpriv", "--pdeathsig", name, "sh", "-c", PARENT_STILL_LIVES, str(os.getpid()), *command]
