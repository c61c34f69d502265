"""A coordination store on a full disk reports that, serves reads, and continues when there is space."""

from __future__ import annotations

from pathlib import Path

import pytest

from bookkeeper.config.sections import CoordinationSettings
from bookkeeper.coordination.embedded import EmbeddedCoordination
from bookkeeper.errors import NoSpaceError
from tests.support.small_disk import NoMountError, small_disk

SETTINGS = CoordinationSettings(session_lease_ms=60_000, session_renew_ms=10)


def test_a_full_disk_refuses_new_sessions_and_values_and_keeps_existing_ones(tmp_path: Path) -> None:
    try:
        with small_disk(tmp_path / "disk", 4 << 20) as disk:
            store = EmbeddedCoordination(disk.directory / "coordination", SETTINGS)
            try:
                session = store.open_session("tserver", "127.0.0.1:1")
                store.put("/names/a", b"1")
                disk.fill()
                with pytest.raises(NoSpaceError, match="make room there"):
                    store.put("/names/large", b"x" * (8 << 20))
                with pytest.raises(NoSpaceError, match="make room there"):
                    store.open_session("tserver", "127.0.0.1:2")
                assert session.is_valid()
                assert [info.session_id for info in store.sessions("tserver")] == [session.session_id]
                found = store.get("/names/a")
                assert found is not None
                assert found.value == b"1"
                disk.release()
                store.put("/names/b", b"2")
                assert store.open_session("tserver", "127.0.0.1:2").is_valid()
            finally:
                store.close()
    except NoMountError as error:
        pytest.skip(str(error))
