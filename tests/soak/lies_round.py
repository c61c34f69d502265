"""A table that replicates to a liar while clients write it and other peers get it: nobody else notices.

A round raises InvariantError with its seed when a process of the source ended, grew beyond its budget or met an error
that nobody foresaw, or when the source can't say what the liar waits for. The caller checks the other peers' rows.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import psutil

from bookkeeper.errors import BookkeeperError, UnavailableError
from bookkeeper.rpc.frames.budget import limits_of
from tests.soak.faults import InvariantError
from tests.soak.fuzz_round import AFTERWARDS, SLACK_BYTES, memory_of, process_problems
from tests.soak.lying_peer import LyingPeer
from tests.soak.trace import Trace
from tests.support.cluster import Cluster
from tests.support.workloads_pair import Pair

ALIAS = "liar"
SHARE = 0.3
"""Of the answers. With more lies, most streams end before their first message."""
IMPORTED = "lied-files"
IMPORTS = 8
"""Their files are offered whole."""
DEFINED = 30
"""Commands of an operator that the liar answers."""
LIES = 200
"""Beside a pair."""
LIMIT_S = 240.0
UNFORESEEN = re.compile(r"^.*(?:failed unexpectedly|Traceback \(most recent call last\)).*$", re.MULTILINE)
TEXT_MAX = 5_000
"""Characters of an error in a status: a peer chooses up to 2,000 of them, and this side adds what it means."""


def run_lies(
    cluster: Cluster,
    table: str,
    home: Path,
    seed: int,
    count: int,
    trace: Trace,
    *,
    imports: int = IMPORTS,
    defined: int = DEFINED,
) -> None:
    """Let ``table`` and a table of imports replicate to a liar until it has told so many lies, while the caller writes.
    ``home``: a directory that the cluster may read. Raises InvariantError.
    """
    replication, tables = cluster.client.replication, cluster.client.tables
    before, logs = memory_of(cluster, ("replay",)), _logs(cluster)
    tables.create(IMPORTED, [b"m"])
    with LyingPeer(home, seed) as liar:
        replication.define_cluster(ALIAS, liar.master.address, liar.secret_file)
        try:
            replication.enable(table, ALIAS, remote_table="anything")
            replication.enable(IMPORTED, ALIAS, remote_table="anything else")
            liar.lies.share = SHARE
            for number in range(imports):
                tables.import_directory(IMPORTED, _given(home / f"given-{number}"))
            for _ in range(defined):
                with suppress(BookkeeperError):
                    replication.define_cluster("other", liar.master.address, liar.secret_file)
                with suppress(BookkeeperError):
                    replication.enable(table, ALIAS, remote_table="another")
            cluster.wait_until(lambda: _looked_at(cluster, table) and liar.lies.count >= count, "lies", LIMIT_S)
            told = dict(liar.lies.told)
        except (BookkeeperError, AssertionError) as error:
            told = dict(liar.lies.told)
            raise InvariantError(f"liar with seed {seed} after {told}: {type(error).__name__}: {error}") from error
        finally:
            liar.lies.share = 0.0
            for config in replication.config():
                if config.target.cluster == ALIAS:
                    replication.disable(config.table, ALIAS)
            for found in replication.clusters():
                if found.quorum == liar.master.address:
                    replication.delete_cluster(found.name, found.quorum)
            tables.delete(IMPORTED)
    most = limits_of(cluster.settings.rpc).process_bytes + SLACK_BYTES
    problems = process_problems(before, memory_of(cluster, ("replay",)), most) + _unforeseen(cluster, logs)
    if problems:
        raise InvariantError(f"liar with seed {seed} after {told}: " + "; ".join(problems))
    trace.say(f"a peer told lies with seed {seed}: {told}")


def run_lies_round(pair: Pair, seed: int, trace: Trace) -> None:
    """A liar beside the other cluster of a pair, under load; then both hold what was written. Raises InvariantError."""
    try:
        with pair.load():
            run_lies(pair.west, pair.loaders[0].workload.table, pair.directory / "liar", seed, LIES, trace)
            pair.wait_written(AFTERWARDS)
        pair.check()
    except (BookkeeperError, AssertionError, psutil.Error) as error:
        raise InvariantError(f"liar with seed {seed}: {type(error).__name__}: {error}") from error
    trace.say(f"{pair.written()}  both clusters hold all written rows beside a liar")


def _looked_at(cluster: Cluster, table: str) -> bool:
    """Ask everything that an operator may ask. Raises AssertionError when an answer has what a peer may not choose."""
    replication = cluster.client.replication
    try:
        states = replication.status(table)
        report = replication.why(table)
        replication.quarantine(table)
    except UnavailableError:
        return False
    texts = [state.last_error or "" for state in states] + [cause.text for cause in report.causes]
    for text in texts:
        assert len(text) <= TEXT_MAX, f"an error of {len(text)} characters: {text[:100]!r}"
        assert text.isprintable(), f"an error with control characters: {text[:200]!r}"
    return True


def _given(directory: Path) -> Path:
    """A directory with some records."""
    directory.mkdir()
    lines = [f"{number:03},geo,q,value,\n" for number in range(200)]
    (directory / "given.csv").write_text("row,family,qualifier,value,visibility\n" + "".join(lines))
    return directory


def _logs(cluster: Cluster) -> dict[Path, int]:
    return {path: path.stat().st_size for path in cluster.settings.logs_dir.glob("*.log")}


def _unforeseen(cluster: Cluster, before: dict[Path, int]) -> list[str]:
    """Lines of the logs since then that tell of an error without a class of its own."""
    found = []
    for path in sorted(_logs(cluster)):
        with path.open("rb") as log:
            log.seek(before.get(path, 0))
            found += [f"{path.name}: {line}" for line in UNFORESEEN.findall(log.read().decode(errors="replace"))[:3]]
    return found
