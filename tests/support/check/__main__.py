"""``python -m tests.support.check``: the tests of ``make check``. Ends as pytest ends."""

from __future__ import annotations

import os
import sys

from tests.support.check.changed_tests import FILES_MAX, ROOT, changed_files, files_of_tests, imports_of

ONE_ROW = "tests/integration/test_one_row.py"
FAMILIES = ("test_schedules*.py", "test_segments*.py")
"""Schedules that are alike are in one file."""
WORKERS = 2
REAL_PROCESSES = ("tests/integration/", "tests/contract/")
"""Their tests take too long."""


def arguments() -> list[str]:
    """Those of pytest."""
    base, changed = changed_files(ROOT)
    found = files_of_tests(changed, imports_of(ROOT))
    chosen = [file for file in found if not file.startswith(REAL_PROCESSES)]
    left = len(chosen) - FILES_MAX
    chosen = chosen[:FILES_MAX]
    told = f", and {left} further ones are left to make test" if left > 0 else ""
    sys.stderr.write(f"{len(changed)} files changed against {base}: {len(chosen)} files of tests{told}\n")
    simulation = ROOT / "tests" / "simulation"
    families = sorted(path.relative_to(ROOT).as_posix() for name in FAMILIES for path in simulation.glob(name))
    thin = [file for file in families if file not in chosen]
    return [
        "-m", "not benchmark and not long", "-q",
        f"--numprocesses={WORKERS}", "--dist=loadfile", "--no-loadscope-reorder",
        "-p", "tests.support.check.first_of", *(f"--first-of={file}" for file in thin),
        ONE_ROW, *thin, *chosen,
    ]  # fmt: skip


if __name__ == "__main__":
    os.chdir(ROOT)
    os.execv(sys.executable, [sys.executable, "-m", "pytest", *arguments(), *sys.argv[1:]])
