"""Statuses of other versions: recorded bytes, Accumulo's message, and a later version with more fields."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import Message

import combiners
from combiners import CLOSED, OPEN, Barrier, ReplicationStatus, Share, append, combine, replication_status_pb2

ROOT = Path(combiners.__file__).parent.parent

GOLDEN = {
    "": ReplicationStatus(),
    "10ac021864": ReplicationStatus(replication_needed_offset=300, replication_finished_offset=100),
    "080110ac0218ac022000": ReplicationStatus(
        state=CLOSED, replication_needed_offset=300, replication_finished_offset=300, created_time=0
    ),
    "100320e8d8f7ec9d322a130802120d66696c653a2f772f312e77616c18093080203840": ReplicationStatus(
        state=OPEN,
        replication_needed_offset=3,
        created_time=1_726_000_000_104,
        barriers=[Barrier(offset=2, file="file:/w/1.wal", until_offset=9)],
        needed_bytes=4_096,
        finished_bytes=64,
    ),
    "10ac0242130a0b656173743a72313a313a3110c80118c0704880015008": ReplicationStatus(
        replication_needed_offset=300,
        shares=[Share(target="east:r1:1:1", records=200, bytes=14_400)],
        finished_share_records=128,
        finished_share_bytes=8,
    ),
}


@pytest.mark.parametrize("recorded", GOLDEN)
def test_recorded_bytes_keep_their_meaning(recorded: str) -> None:
    assert ReplicationStatus.FromString(bytes.fromhex(recorded)) == GOLDEN[recorded]
    assert GOLDEN[recorded].SerializeToString(deterministic=True).hex() == recorded


def test_explicit_zeros_parse_to_an_equal_message() -> None:
    assert ReplicationStatus.FromString(bytes.fromhex("080010051800")) == ReplicationStatus(replication_needed_offset=5)


def _newer_status() -> type[Message]:
    """The message of a later version, with a maximum, a singular and a repeated message, and a field in Barrier."""
    file = descriptor_pb2.FileDescriptorProto()
    replication_status_pb2.DESCRIPTOR.CopyToProto(file)
    file.name, file.package = "tests/newer_status.proto", "tests.newer"
    by_name = {message.name: message for message in file.message_type}
    barrier, status = by_name["Barrier"], by_name["ReplicationStatus"]
    field = descriptor_pb2.FieldDescriptorProto
    barrier.field.add(name="reason", number=9, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    for each in filter(lambda each: each.type_name, status.field):
        each.type_name = each.type_name.replace(".combiners.", ".tests.newer.")
    status.field.add(name="records_seen", number=20, type=field.TYPE_UINT64, label=field.LABEL_OPTIONAL)
    status.field.add(
        name="holds", number=21, type=field.TYPE_MESSAGE, label=field.LABEL_REPEATED, type_name=".tests.newer.Barrier"
    )
    status.field.add(name="notes", number=22, type=field.TYPE_STRING, label=field.LABEL_REPEATED)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tests.newer.ReplicationStatus"))


NEWER = _newer_status()


def _newer(**fields: object) -> ReplicationStatus:
    """A status of the newer version, parsed by this one."""
    return ReplicationStatus.FromString(NEWER(**fields).SerializeToString())


def test_fields_of_a_newer_version_survive_a_merge_and_join() -> None:
    one = _newer(
        replication_needed_offset=5,
        records_seen=300,
        notes=["b", "a"],
        holds=[{"offset": 1, "file": "f"}],
        barriers=[{"offset": 3, "file": "g", "reason": "moved"}],
    )
    two = _newer(
        replication_needed_offset=7,
        records_seen=20,
        notes=["c", "a"],
        holds=[{"offset": 1, "file": "f"}, {"offset": 2, "file": "f"}],
        barriers=[{"offset": 3, "file": "g", "reason": "moved"}],
    )
    assert combine([one, two]) == combine([two, one]) == combine([combine([one, two]), one])
    seen = NEWER.FromString(combine([one, two]).SerializeToString())
    assert seen == NEWER(
        replication_needed_offset=7,
        records_seen=300,
        notes=["a", "b", "c"],
        holds=[{"offset": 1, "file": "f"}, {"offset": 2, "file": "f"}],
        barriers=[{"offset": 3, "file": "g", "reason": "moved"}],
    )


def test_a_single_newer_status_is_kept_as_it_is() -> None:
    status = _newer(replication_needed_offset=5, records_seen=300, notes=["a", "b"])
    assert combine([status]) == status
    assert NEWER.FromString(append(status, 1).SerializeToString()).records_seen == 300  # type: ignore[attr-defined]


def test_a_state_of_a_newer_version_is_above_closed() -> None:
    newer = ReplicationStatus.FromString(b"\x08\x02")
    assert combine([newer, ReplicationStatus(state=CLOSED)]).state == 2


def test_the_generated_module_is_up_to_date(tmp_path: Path) -> None:
    out = tmp_path / "status.bin"
    subprocess.run(
        [
            sys.executable,
            "-m",
            "grpc_tools.protoc",
            "-I.",
            f"--descriptor_set_out={out}",
            "combiners/replication_status.proto",
        ],
        cwd=ROOT,
        check=True,
        env={**os.environ, "PYTHONPATH": ""},
        timeout=60,
    )
    (fresh,) = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file
    committed = descriptor_pb2.FileDescriptorProto.FromString(replication_status_pb2.DESCRIPTOR.serialized_pb)
    fresh.ClearField("source_code_info")
    for file in (fresh, committed):
        for message in file.message_type:
            for each in message.field:
                each.ClearField("json_name")
    assert committed == fresh
    stub = Path(replication_status_pb2.__file__).with_suffix(".pyi").read_text()
    assert all(
        f"    {each.name}: " in stub or f"def {each.name}(" in stub for m in fresh.message_type for each in m.field
    )
