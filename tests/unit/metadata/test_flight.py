"""How long a write to the books may be in flight (R4)."""

from __future__ import annotations

from pathlib import Path

import pytest

from bookkeeper.config.file import new_settings
from bookkeeper.metadata.flight import books_flight_ms


@pytest.mark.parametrize(
    ("url", "flight_ms"),
    [
        ("sqlite:///metadata.db", 18_000 + 60_000),
        ("hbase+zk://z1:2181,z2:2181/west", 18_000 + (9_000 + 2_000 + 12_000 + 10_000) + 45_000),
        ("hbase://h:9090/west", 18_000 + 60_000 + 45_000),
    ],
)
def test_r4_the_time_of_a_write_in_flight_is_that_of_all_that_may_stand_still(url: str, flight_ms: int) -> None:
    overrides = {"metadata.region_session_ms": 45_000, "standalone.gateway_port": 4711}
    assert books_flight_ms(new_settings(Path("west"), "west", metadata_url=url, overrides=overrides)) == flight_ms
