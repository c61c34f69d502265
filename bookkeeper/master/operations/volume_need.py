"""What a cluster without a common Volume refuses: its hosts are on several machines, and share no directory.

Tables with one replica, imports and exports have their files on the Volume. Without a common one, each host would look
for them in its own directory.
"""

from __future__ import annotations

from bookkeeper.errors import RefusedError
from bookkeeper.master.operations.context import Context

MORE_REPLICAS = "give it table.replicas of 2 or more, and start as many hosts (bookkeeper init --join)"
AS_RECORDS = "write the rows with a client instead, or let a cluster that has them replicate to this one"
FROM_A_PEER = "read the rows with a scan instead, or let a cluster to which this one replicates export them"


def refuse_without_volume(context: Context, what: str, next_step: str) -> None:
    """Raise RefusedError when no place is common to all hosts, which ``what`` needs."""
    if not context.settings.has_volume:
        raise RefusedError(
            f"{what} needs a place that all hosts reach, and this cluster has none (storage.volume = none): {next_step}"
        )
