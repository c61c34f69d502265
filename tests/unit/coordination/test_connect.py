"""Which store an address opens, and what that imports."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from bookkeeper.standalone.children.forked_starts import WARM

PROCESSES = ("bookkeeper.master.__main__", "bookkeeper.tserver.run", "bookkeeper.replay.__main__")


@pytest.mark.parametrize("module", [*PROCESSES, "bookkeeper.standalone.foreground", "shell.config_commands"])
def test_no_client_of_zookeeper_is_imported_without_an_address_that_names_one(module: str) -> None:
    code = f"""
import json, sys, tempfile
import {module}
from bookkeeper.standalone.directory import init_cluster
with tempfile.TemporaryDirectory() as directory:
    init_cluster(directory, "alone")
print(json.dumps([name for name in sys.modules if name.partition(".")[0] in ("kazoo", "puresasl")]))
"""
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert json.loads(found.stdout) == []


def test_no_process_is_forked_with_a_client_of_zookeeper() -> None:
    assert not [name for names in WARM.values() for name in names if "zookeeper" in name]
