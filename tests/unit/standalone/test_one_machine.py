"""One machine uses a directory: another one is noticed by its record, a network file system by its type."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from bookkeeper.clock import SystemClock
from bookkeeper.config.file import new_settings
from bookkeeper.errors import RefusedError
from bookkeeper.standalone import one_machine
from bookkeeper.standalone.one_machine import FILE, OneMachine, file_system_of, refuse_network
from tests.support.faults import fault
from tests.support.machines_settings import ON_MACHINES
from tests.support.must_raise import must_raise

MOUNTS = """22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:40 / /net rw,relatime - nfs4 filer:/export rw,vers=4.2
31 30 8:2 / /net/local rw - xfs /dev/sdb1 rw
32 22 0:41 / /mnt/a\\040b rw master:2 - cifs //filer/share rw
33 32 0:42 / /net/local rw - fuse.sshfs host:/ rw
"""


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_machine, "RENEW_MS", 1)


class WhileWaiting(SystemClock):
    """Something happens in each wait, and no time passes."""

    def __init__(self, happens: list[OneMachine]) -> None:
        self.others = happens

    def wait(self, event: threading.Event, timeout_ms: float) -> bool:
        del timeout_ms
        for other in self.others:
            other.renew()
        return event.is_set()


def machine(directory: Path, boot: str, *others: OneMachine, said: list[str] | None = None) -> OneMachine:
    return OneMachine(directory, WhileWaiting(list(others)), ([] if said is None else said).append, boot)


def record(directory: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((directory / FILE).read_text())
    return found


def another_machine_is_kept_out(directory: Path) -> None:
    first = machine(directory, "boot-1")
    first.begin(threading.Event())
    before = record(directory)
    with must_raise(
        RefusedError, "two machines use one directory", match=r"machine .* runs the cluster in .*: stop it"
    ):
        machine(directory, "boot-2", first).begin(threading.Event())
    assert before["boot"] == record(directory)["boot"] == "boot-1"


def test_another_machine_that_renews_its_record_is_kept_out(tmp_path: Path) -> None:
    another_machine_is_kept_out(tmp_path)


def test_without_the_watch_two_machines_use_one_directory(tmp_path: Path) -> None:
    with fault("machines-share-a-directory"), pytest.raises(AssertionError, match="two machines use one directory"):
        another_machine_is_kept_out(tmp_path)


def test_a_record_that_nobody_renews_is_taken_over_and_that_of_this_boot_at_once(tmp_path: Path) -> None:
    machine(tmp_path, "boot-1").begin(threading.Event())
    machine(tmp_path, "boot-2").begin(threading.Event())
    assert record(tmp_path)["boot"] == "boot-2"
    never = machine(tmp_path, "boot-2", machine(tmp_path, "boot-1"))
    never.begin(threading.Event())
    assert record(tmp_path)["boot"] == "boot-2", "a start waits for a record of its own machine"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"boot": "a"}', '{"boot": "a", "machine": "b", "number": "c"}'])
def test_a_record_that_was_cut_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / FILE).write_text(text)
    machine(tmp_path, "boot-2").begin(threading.Event())
    assert record(tmp_path)["boot"] == "boot-2"


def test_two_that_started_at_once_say_so_once(tmp_path: Path) -> None:
    said: list[str] = []
    first, second = machine(tmp_path, "boot-1", said=said), machine(tmp_path, "boot-2")
    first.begin(threading.Event())
    for _ in range(2):
        second.renew()
        first.renew()
    (line,) = said
    assert "runs the cluster in" in line
    assert "stop one of them now; hosts on several machines need" in line


def test_a_clean_end_removes_its_own_record_alone(tmp_path: Path) -> None:
    over = threading.Event()
    over.set()
    first = machine(tmp_path, "boot-1")
    first.begin(over)
    machine(tmp_path, "boot-2").run(over)
    assert record(tmp_path)["boot"] == "boot-1"
    first.run(over)
    assert not (tmp_path / FILE).exists()


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/srv/west", "ext4"),
        ("/net", "nfs4"),
        ("/net/west", "nfs4"),
        ("/network/west", "ext4"),
        ("/net/local/west", "fuse.sshfs"),
        ("/mnt/a b/west", "cifs"),
    ],
)
def test_the_file_system_is_that_of_the_last_mount_above(tmp_path: Path, path: str, kind: str) -> None:
    (tmp_path / "mountinfo").write_text(MOUNTS)
    assert file_system_of(Path(path), tmp_path / "mountinfo") == kind
    assert file_system_of(Path(path), tmp_path / "none") == ""
    assert file_system_of(tmp_path)


def a_store_on_a_network_is_refused(place: Path) -> None:
    (place / "mountinfo").write_text(MOUNTS)
    settings = new_settings("/net/west", "west")
    words = r"/net/west lies on a network file system \(nfs4\), .*; choose a directory on a local disk"
    with must_raise(RefusedError, "a network's locks are trusted", match=words):
        refuse_network(settings, place / "mountinfo")
    refuse_network(new_settings("/srv/west", "west"), place / "mountinfo")
    refuse_network(new_settings("/net/west", "west", overrides=ON_MACHINES), place / "mountinfo")


def test_a_store_on_a_network_file_system_is_refused(tmp_path: Path) -> None:
    a_store_on_a_network_is_refused(tmp_path)


def test_without_the_rule_its_locks_are_trusted(tmp_path: Path) -> None:
    with (
        fault("network-locks-count"),
        pytest.raises(AssertionError, match="a network's locks are trusted"),
    ):
        a_store_on_a_network_is_refused(tmp_path)
