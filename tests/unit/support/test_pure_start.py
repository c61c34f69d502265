"""A pure test starts at once: what every test imports brings no cluster, no client and no engine along."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
COSTLY = (
    "bookkeeper.client",
    "bookkeeper.master",
    "bookkeeper.rpc",
    "bookkeeper.tserver",
    "happybase",
    "pyarrow",
    "pyspark",
)


def test_what_all_tests_import_is_light() -> None:
    source = "import sys; import tests.conftest; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", source], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not set(done.stdout.split()).intersection(COSTLY)
