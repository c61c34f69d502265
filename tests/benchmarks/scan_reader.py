"""A reader of its own process: scans a table some times when it is told to, and prints the number of rows."""

from __future__ import annotations

import sys
from pathlib import Path

from bookkeeper.client import Client


def scanned_rows(client: Client, table: str, stale_ms: int) -> int:
    """The rows of one scan; ``stale_ms`` 0: the leaders answer."""
    return int(client.scan(table, stale_ms=stale_ms or None).table().num_rows)


def main(directory: str, table: str, stale_ms: str, scans: str) -> None:
    """Say that it is ready, wait for a line, scan, and print the rows of all scans."""
    with Client.connect(Path(directory)) as client:
        scanned_rows(client, table, int(stale_ms))
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.readline()
        sys.stdout.write(f"{sum(scanned_rows(client, table, int(stale_ms)) for _ in range(int(scans)))}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
