"""The monitor of a real cluster: its numbers are those of the books and of the status that clients get."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from bookkeeper.metadata import keys, values
from bookkeeper.monitor.metrics import PREFIX
from bookkeeper.standalone.ports import free_ports
from tests.support import books
from tests.support.cluster import Cluster
from tests.support.masters import MasterNode
from tests.support.monitor_scene import Scene, get, lagging, read
from tests.support.shell import quick
from tests.support.tservers import wait_until
from tests.support.volumes import name_at

pytestmark = [pytest.mark.integration, pytest.mark.spark]

ROWS = 40
ADDRESS = re.compile(r"the monitor answers at (\S+)/")


@pytest.fixture(scope="module")
def scene(west: Cluster, east: Cluster) -> Iterator[Scene]:
    with lagging(west, east, "monitored", ROWS) as made:
        yield made


def books_of(scene: Scene, file: str) -> tuple[int, int]:
    """Needed and finished offset of a file for the scene's peer, as the books have them."""
    table = books.books_of(scene.west.settings)
    row = table.get(keys.repl_row(file), ("repl", "done"))
    table.close()
    assert row is not None
    offsets = {"repl": 0, "done": 0}
    for column, cell in row.cells.items():
        if keys.parse_target(column.qualifier).cluster == scene.cluster:
            status = values.decode_status(cell.value)
            offsets[column.family] = status.replication_needed_offset or status.replication_finished_offset
    return offsets["repl"], offsets["done"]


def test_files_and_their_lag_are_those_of_the_status_and_of_the_books(scene: Scene) -> None:
    body = scene.until(f"api/files?cluster={scene.cluster}", lambda found: any(f["last_error"] for f in found["files"]))
    status = [found for found in scene.west.client.replication.status(scene.table) if found.lag_records]
    shown = {row["file"]: row for row in body["files"] if row["lag_records"]}
    assert sum(row["lag_records"] for row in shown.values()) == scene.lag_records >= ROWS
    assert {found.file: (found.needed, found.finished, found.lag_records, found.lag_bytes) for found in status} == {
        file: (row["needed"], row["finished"], row["lag_records"], row["lag_bytes"]) for file, row in shown.items()
    }
    for file, row in shown.items():
        assert books_of(scene, file) == (row["needed"], row["finished"])
        assert row["worker"] in {tserver["session"] for tserver in scene.get("api/overview")["tservers"]}


def test_what_is_behind_is_kept_for_whom_it_is_behind(scene: Scene) -> None:
    behind = {row["file"] for row in scene.get(f"api/files?cluster={scene.cluster}")["files"] if row["lag_records"]}
    assert behind

    def kept_for(body: dict[str, list[dict[str, list[dict[str, str]]]]]) -> set[str]:
        return {
            str(file["file"])
            for file in body["files"]
            if any(
                (reason["kind"], reason["who"]) == ("replication", scene.cluster)
                and reason["detail"].startswith(f"table {scene.table}: lacks ")
                for reason in file["reasons"]
            )
        }

    body = scene.until("api/kept?rows=500", lambda found: behind <= kept_for(found))
    logs = {name_at(path, scene.west.settings.directory) for path in scene.west.settings.wal_dir.glob("*/*.wal")}
    assert behind <= {file["file"] for file in body["files"]} & logs


def test_metrics_say_the_same(scene: Scene) -> None:
    text = read(f"{scene.url}/metrics", scene.token)[1]
    families = {found.name: found for found in text_string_to_metric_families(text)}
    labels = {"table": scene.table, "peer": scene.cluster}
    (lag,) = [found for found in families[f"{PREFIX}replication_lag_records"].samples if found.labels == labels]
    (age,) = [found for found in families[f"{PREFIX}replication_lag_seconds"].samples if found.labels == labels]
    assert lag.value == scene.lag_records
    assert age.value > 0
    assert families[f"{PREFIX}tservers"].samples[0].value == 2


def test_a_request_without_the_token_sees_nothing_and_the_log_has_its_address(
    scene: Scene,
) -> None:
    for path in ("", "files", "metrics", "api/overview", "static/monitor.css", "nothing"):
        assert read(f"{scene.url}/{path}")[0] == 401, path
        assert read(f"{scene.url}/{path}", "wrong" + scene.token)[0] == 401, path
    assert get(f"{scene.url}/ready") == (200, {"ready": True})
    assert get(f"{scene.url}/health") == (200, {"healthy": True})
    log = scene.west.log_text("master")
    assert "the monitor shows nothing without its token, and the request has none; closed" in log
    assert scene.token not in log


def test_the_command_prints_the_address_that_opens_it(scene: Scene) -> None:
    home = str(scene.west.directory)
    assert quick("monitor", home).out == f"{scene.door}\n"
    assert quick("monitor", home, "--token").out == f"{scene.token}\n"
    told = quick("monitor", home, "--json").json
    assert told == {"url": scene.door, "address": f"{scene.url}/", "token": scene.token}


def test_the_leader_is_healthy_and_ready_and_has_a_history(scene: Scene) -> None:
    assert scene.get("health")["healthy"]
    assert scene.get("ready") == {"ready": True, "leads": True, "reason": ""}
    series = {found["cluster"]: found for found in scene.get("api/history")["series"]}
    assert series[scene.cluster]["lag_records"][-1] == scene.lag_records


def test_a_master_that_stands_by_answers_and_says_where_the_leader_is(scene: Scene, tmp_path: Path) -> None:
    log = tmp_path / "second.log"
    second = MasterNode(scene.west.settings, log, free_ports(1)[0])
    try:
        wait_until(lambda: bool(ADDRESS.search(log.read_text())), "the second master's monitor answers")
        found = ADDRESS.search(log.read_text())
        assert found is not None
        url, overview = found[1], dict[str, Any]()

        def is_told() -> bool:
            """The first question to the leader may have come too late for the first answer."""
            overview.update(get(f"{url}/api/overview", scene.token)[1])
            return bool(overview["leader"]["monitor"])

        wait_until(is_told, "where the leader's monitor is")
        assert (overview["leads"], overview["leader"]["monitor"]) == (False, f"{scene.url}/")
        assert overview["leader"]["address"] == scene.west.quorum
        assert get(f"{found[1]}/api/peers", scene.token)[0] == 503
        assert get(f"{found[1]}/ready")[0] == 200
    finally:
        second.kill9()
