"""Locks for ``make venv``: each package has the hashes of its files and is as pyproject.toml asks for it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[3]
PYTHONS = ("3.11.2", "3.12.0", "3.13.0")
"""Debian 12 has the first."""

_PIN = re.compile(r"^(?P<name>[a-z0-9-]+)==(?P<version>\S+?)(?: ; (?P<marker>.+?))? \\$")
_HASH = re.compile(r"^    --hash=sha256:[0-9a-f]{64}( \\)?$")


@dataclass(frozen=True, slots=True)
class Pin:
    """A line of a lock."""

    name: str
    version: Version
    marker: Marker | None
    hashes: int

    def is_for(self, python: str) -> bool:
        """Whether it is installed on Linux with this Python."""
        place = {"python_full_version": python, "python_version": ".".join(python.split(".")[:2])}
        return self.marker is None or self.marker.evaluate(place)


def pins_of(text: str) -> Iterator[Pin]:
    """Every pin of a lock; raises ValueError for a line that is none."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    while lines:
        found = _PIN.match(lines.pop(0))
        if found is None:
            raise ValueError("a line that pins nothing")
        count = 0
        while lines and _HASH.match(lines[0]):
            lines.pop(0)
            count += 1
        marker = Marker(found["marker"]) if found["marker"] else None
        yield Pin(canonicalize_name(found["name"]), Version(found["version"]), marker, count)


def asked() -> dict[str, list[Requirement]]:
    """The requirements of each lock."""
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    listed = [*project["project"]["dependencies"], *extras["demo"], *extras["dev"]]
    return {
        "build.lock": [Requirement(text) for text in project["build-system"]["requires"]],
        "requirements.lock": [Requirement(text) for text in listed],
    }


def unmet(requirements: list[Requirement], pins: list[Pin], python: str) -> list[str]:
    """Requirements that a lock does not meet."""
    chosen = {pin.name: pin for pin in pins if pin.is_for(python)}
    return [
        str(wanted)
        for wanted in requirements
        if (pin := chosen.get(canonicalize_name(wanted.name))) is None or pin.version not in wanted.specifier
    ]


@pytest.mark.parametrize("name", ["build.lock", "requirements.lock"])
def test_a_lock_has_hashes_and_names_no_place_to_get_packages_from(name: str) -> None:
    text = (ROOT / "docker" / name).read_text()
    pins = list(pins_of(text))
    assert pins
    assert [pin.name for pin in pins if not pin.hashes] == []
    assert "://" not in text


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("name", ["build.lock", "requirements.lock"])
def test_a_lock_goes_with_the_project(name: str, python: str) -> None:
    pins = list(pins_of((ROOT / "docker" / name).read_text()))
    for_here = [pin.name for pin in pins if pin.is_for(python)]
    assert len(for_here) == len(set(for_here)), "one version of each"
    assert unmet(asked()[name], pins, python) == [], "make lock"


def test_what_sources_are_built_with_is_the_same_in_both() -> None:
    build, rest = ({pin.name: pin for pin in pins_of((ROOT / "docker" / name).read_text())} for name in asked())
    assert build.items() <= rest.items()


def test_every_dependency_has_a_lower_bound() -> None:
    unbound = [str(found) for wanted in asked().values() for found in wanted if ">=" not in str(found.specifier)]
    assert unbound == []


def test_a_lock_that_lags_behind_is_noticed() -> None:
    pins = list(pins_of((ROOT / "docker" / "requirements.lock").read_text()))
    wanted = [Requirement("pyarrow>=1000"), Requirement("a-package-of-tomorrow>=1"), Requirement("pyarrow>=1")]
    assert unmet(wanted, pins, "3.11.2") == ["pyarrow>=1000", "a-package-of-tomorrow>=1"]


@pytest.mark.parametrize("line", ["pyarrow>=26 \\", "-e .", "--index-url https://elsewhere/simple", "pyarrow==26.0.1"])
def test_a_line_that_pins_nothing_is_noticed(line: str) -> None:
    with pytest.raises(ValueError, match="pins nothing"):
        list(pins_of(line))
