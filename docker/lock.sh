#!/usr/bin/env bash
# Write docker/requirements.lock and docker/build.lock anew from pyproject.toml: every package that `make venv` installs,
# with its version and the hashes of its files, for each platform and Python that the project runs on. Versions that are
# there stay, unless pyproject.toml asks for others; UPGRADE=1: the newest that it allows.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

cd "$repo_root"
compile=(.venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate
    --custom-compile-command 'make lock')
[ "${UPGRADE:-0}" = 0 ] || compile+=(--upgrade)

built_with() {
    .venv/bin/python -c '
import tomllib
with open("pyproject.toml", "rb") as file:
    print(*tomllib.load(file)["build-system"]["requires"], sep="\n")'
}

built_with | "${compile[@]}" --output-file docker/build.lock -
"${compile[@]}" --constraints docker/build.lock --extra demo --extra dev --output-file docker/requirements.lock pyproject.toml
say "docker/requirements.lock has $(grep -c '==' docker/requirements.lock) packages"
