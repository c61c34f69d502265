"""The settings file explains every key, and an error names every mistake with the next step."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bookkeeper.config.file import (
    SETTINGS_FILE,
    Problem,
    check_settings,
    format_settings,
    left_out,
    load_settings,
    new_settings,
    write_settings,
)
from bookkeeper.config.sections import Sections, Settings
from bookkeeper.config.setting import explain
from bookkeeper.errors import ExistsError, InvalidInputError, NotFoundError
from tests.support.faults import fault
from tests.support.must_raise import must_raise


def _file(directory: Path, text: str) -> Path:
    (directory / SETTINGS_FILE).write_text(text)
    return directory


INSTANCE = '[instance]\nname = "west"\ninstance_id = "i-1"\n'
OWN_GATEWAY = '[metadata]\nurl = "hbase+zk://z1:2181,z2:2182/west"\n[standalone]\ngateway_port = 4711\n'
NO_VOLUME = (
    '[coordination]\nurl = "zk://z1:2181/west"\n[metadata]\nurl = "hbase://h:9090/west"\n'
    '[storage]\nvolume = "none"\nlogs = "host"\n'
)


def test_settings_read_back(tmp_path: Path) -> None:
    settings = new_settings(tmp_path, "west", master_port=12345, tservers=3)
    assert write_settings(settings) == tmp_path / SETTINGS_FILE
    loaded = load_settings(tmp_path)
    assert loaded == settings
    assert (loaded.master.address, loaded.standalone.tservers) == ("127.0.0.1:12345", 3)
    assert [p.name for p in tmp_path.iterdir()] == [SETTINGS_FILE]


def test_a_second_init_changes_nothing(tmp_path: Path) -> None:
    write_settings(new_settings(tmp_path, "west"))
    before = (tmp_path / SETTINGS_FILE).read_text()
    with pytest.raises(ExistsError):
        write_settings(new_settings(tmp_path, "east"))
    assert (tmp_path / SETTINGS_FILE).read_text() == before


def test_a_new_cluster_has_an_identity_of_its_own(tmp_path: Path) -> None:
    assert new_settings(tmp_path, "a").instance.instance_id != new_settings(tmp_path, "a").instance.instance_id


def test_only_the_instance_is_required(tmp_path: Path) -> None:
    settings = load_settings(_file(tmp_path, INSTANCE))
    assert settings == Settings(directory=tmp_path, instance=settings.instance)


def test_paths_are_relative_to_the_directory(tmp_path: Path) -> None:
    settings = load_settings(_file(tmp_path, INSTANCE))
    assert settings.metadata_url == f"sqlite:///{tmp_path}/metadata.db"
    assert settings.coordination_dir == tmp_path / "coordination"
    assert settings.wal_dir == tmp_path / "wal"
    far = load_settings(_file(tmp_path, INSTANCE + '[metadata]\nurl = "hbase://h:9090/west"\n'))
    assert far.metadata_url == "hbase://h:9090/west"
    own = load_settings(_file(tmp_path, INSTANCE + OWN_GATEWAY))
    assert (own.hbase_quorum, own.metadata_url) == ("z1:2181,z2:2182", "hbase://127.0.0.1:4711/west")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "[master]\nscan_interval = 5\n",
            "master.scan_interval: unknown setting, did you mean master.scan_interval_ms?",
        ),
        ("[mastr]\nport = 5\n", "mastr: unknown setting, did you mean master?"),
        ("[master]\nwal_roll_bytes = 5\n", "did you mean tserver.wal_roll_bytes?"),
        ("zzz = 1\n", "instance.zzz: unknown setting, known are instance.name, instance.instance_id"),
        ('[master]\nport = "9797"\n', "master.port: it must be a whole number from 1 to 65535"),
        ("[master]\nport = 70000\n", "master.port: it must be a whole number from 1 to 65535"),
        ('[master]\nassigner = "random"\n', "master.assigner: it must be one of 'sequential', 'unordered'"),
        ("[coordination]\nsession_renew_ms = 5000\n", "coordination: session_renew_ms must be at most a third"),
        ("[rpc]\nframe_bytes_max = 1048576\n", "rpc.frame_bytes_max must be at least twice"),
        ('[metadata]\nurl = "mysql://x"\n', "metadata.url: it must be sqlite:///FILE, hbase+zk://"),
        ('[metadata]\nurl = "hbase+zk://z1/west"\n', "metadata.url: it must be sqlite:///FILE, hbase+zk://"),
        ('[metadata]\nurl = "hbase+zk://z1:1/west"\n', "standalone.gateway_port must be a port, because"),
        ('[master]\nhost = ""\n', "master.host: it must be text, not empty"),
        ("[standalone]\nprocesses = []\n", "it must be a list of at least one element; each element one of 'master',"),
        ("[master]\nport = true\n", "master.port: it must be a whole number from 1 to 65535"),
        ('[files]\nroots = ["a/../b"]\n', "files: files.roots has 'a/../b'"),
        (
            '[storage]\nvolume = "none"\n',
            'which needs coordination.url = zk://..., metadata.url = hbase+zk://..., storage.logs = "host"',
        ),
        (
            f"{NO_VOLUME}[standalone]\ntservers = 2\nhosts = 3\n",
            "needs standalone.tservers = 1 (further ones have no place for their logs), standalone.hosts = 1",
        ),
    ],
)
def test_a_mistake_is_named_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        load_settings(_file(tmp_path, INSTANCE + text))
    assert said in caught.value.message
    assert "\n" not in caught.value.message
    assert SETTINGS_FILE in caught.value.message


def every_address_is_never_announced(place: Path) -> None:
    cases = [
        ("rpc", "bind_host", "0.0.0.0", "", "bind_host is 0.0.0.0, which others can't call: name this machine in"),
        ("rpc", "bind_host", "", "", "bind_host is every address, which others can't call"),
        ("rpc", "bind_host", "10.0.0.7", "::", "announced_host is ::, which others can't call: name this machine"),
        ("master", "host", "::", "", "host is ::, which others can't call: name this machine in announced_host"),
        ("monitor", "host", "0.0.0.0", "", "host is 0.0.0.0, which others can't call"),
    ]
    for section, key, bound, announced, said in cases:
        overrides = {f"{section}.{key}": bound, f"{section}.announced_host": announced}
        with must_raise(InvalidInputError, "others are told to call their own machine", match=f"{section}: {said}"):
            new_settings(place, "west", overrides=overrides)


def test_every_address_is_never_announced(tmp_path: Path) -> None:
    every_address_is_never_announced(tmp_path)
    made = new_settings(tmp_path, "west", overrides={"master.host": "::", "master.announced_host": "2001:db8::1"})
    assert made.master.address == "[2001:db8::1]:9797"
    behind = {"master.announced_host": "w.example", "master.announced_port": 97}
    assert new_settings(tmp_path, "west", overrides=behind).master.address == "w.example:97"
    with pytest.raises(InvalidInputError, match=r"tserver.port is the port of one tserver: set standalone"):
        new_settings(tmp_path, "west", tservers=2, overrides={"tserver.port": 9})


def test_without_the_check_it_is(tmp_path: Path) -> None:
    with fault("every-address-is-announced"), pytest.raises(AssertionError, match="call their own machine"):
        every_address_is_never_announced(tmp_path)


def test_missing_unreadable_and_malformed_files_have_different_errors(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="bookkeeper init"):
        load_settings(tmp_path / "nowhere")
    with pytest.raises(InvalidInputError, match=r"not TOML .*line 1"):
        load_settings(_file(tmp_path, "= nonsense"))
    (tmp_path / SETTINGS_FILE).write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidInputError, match="not TOML"):
        load_settings(tmp_path)
    with pytest.raises(InvalidInputError, match=r"instance: it is missing; add it"):
        load_settings(_file(tmp_path, ""))


def test_a_directory_with_any_name_can_hold_the_metadata(tmp_path: Path) -> None:
    url = new_settings(tmp_path / "50% of #1?", "west").metadata_url
    assert url == f"sqlite:///{tmp_path}/50%25%20of%20%231%3F/metadata.db"


def test_the_processes_that_standalone_does_not_start_are_known(tmp_path: Path) -> None:
    assert left_out(tmp_path / "nothing") == []
    for name, started, others in (
        ("whole", ["master", "tserver", "replay"], []),
        ("part", ["tserver"], ["master", "replay"]),
    ):
        write_settings(new_settings(tmp_path / name, name, overrides={"standalone.processes": started}))
        assert left_out(tmp_path / name) == others


def test_further_settings_of_a_new_cluster_are_named_with_their_section(tmp_path: Path) -> None:
    further = {"tserver.wal_roll_bytes": 1_048_576, "metadata.url": "sqlite:///books.db"}
    settings = new_settings(tmp_path, "west", overrides=further)
    assert (settings.tserver.wal_roll_bytes, settings.metadata.url) == (1_048_576, "sqlite:///books.db")
    for unknown in ("tserver.nonsense", "wal_roll_bytes", "instance.name.x", "."):
        with pytest.raises(InvalidInputError):
            new_settings(tmp_path, "west", overrides={unknown: 1})


@pytest.mark.parametrize("name", ["", "a b", "../x", "-x", "x" * 65, 'q"'])
def test_an_invalid_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidInputError, match=r"instance\.name"):
        new_settings(tmp_path, name)


def test_every_setting_has_a_meaning_a_unit_and_a_reason_for_its_default() -> None:
    for facts in explain(Sections):
        assert facts.meaning, facts.name
        assert not facts.meaning.endswith("."), facts.name
        assert (facts.default is None) == (facts.section == "instance"), facts.name
        assert bool(facts.why) == (facts.default is not None), f"{facts.name}: say why this default"
        ending = re.search("_(ms|bytes|mib)$|_(ms|bytes|mib)_max$", facts.key)
        unit = (ending[1] or ending[2]).replace("mib", "MiB") if ending else ""
        assert facts.unit == unit, f"{facts.name}: its name and its type say different units"
        if isinstance(facts.default, int):
            assert facts.least is not None, f"{facts.name} has no least value"
            assert facts.most is not None, f"{facts.name} has no greatest value"


def test_the_file_explains_every_setting_above_it(tmp_path: Path) -> None:
    section, comment, explained = "", "", {}
    for line in format_settings(new_settings(tmp_path, "west")).splitlines():
        if line.startswith("#"):
            assert len(line) <= 100
            comment = f"{comment} {line[2:]}".strip()
            continue
        section = line.strip("[]") if line.startswith("[") else section
        explained[f"{section}.{line.partition(' = ')[0]}"] = comment
        comment = ""
    for facts in explain(Sections):
        assert explained[facts.name] == facts.comment


def test_a_check_names_every_problem_with_file_key_reason_and_next_step(tmp_path: Path) -> None:
    text = '[instance]\nname = "west"\n[master]\nport = 0\n[tserver]\nwal_roll_byte = 1\n'
    path = _file(tmp_path, text) / SETTINGS_FILE
    assert check_settings(tmp_path) == [
        Problem(path, "instance.instance_id", "it is missing", "add it"),
        Problem(path, "master.port", "it must be a whole number from 1 to 65535", "correct the value"),
        Problem(
            path,
            "tserver.wal_roll_byte",
            "unknown setting, did you mean tserver.wal_roll_bytes?",
            "rename it or take it out",
        ),
    ]
    assert check_settings(_file(tmp_path, INSTANCE)) == []
    (missing,) = check_settings(tmp_path / "nowhere")
    assert (missing.key, "bookkeeper init" in missing.next_step) == ("", True)
