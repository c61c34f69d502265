#!/usr/bin/env bash
# Create .venv with the project installed editable, its demo data and its development tools, unless that was
# done for this pyproject.toml, and prepare Spark's classes in it. Two runs at once wait for each other; a run that is
# cut starts over.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

venv=$repo_root/.venv
mkdir -p "$build_dir"
exec 9>"$build_dir/venv.lock"
flock 9

stamp=$(sed -n '/^\[build-system\]/,/^\[tool\.ruff\]/p' "$repo_root/pyproject.toml" | sha256sum | cut -c1-16)
if [ "$(cat "$venv/stamp" 2>/dev/null || true)" != "$stamp" ]; then
    if [ ! -x "$venv/bin/pip" ]; then
        "${PYTHON:-python3}" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
            fail "${PYTHON:-python3} is older than Python 3.11; name another one with PYTHON="
        say "creating .venv"
        rm -rf "$venv"
        "${PYTHON:-python3}" -m venv "$venv"
    fi
    say "installing the project and its tools into .venv"
    "$venv/bin/pip" install --quiet --use-pep517 --disable-pip-version-check --editable "$repo_root[demo,dev]" >&2
    printf '%s\n' "$stamp" >"$venv/stamp"
fi

# Once for this Java and this Spark; nothing to do without a Java, and no harm if it fails.
while read -r line; do say "$line"; done < <(
    cd "$repo_root" && "$venv/bin/python" -m bookkeeper.replay.make_archive 2>"$build_dir/class-archive.log" || true
)
