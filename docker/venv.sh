#!/usr/bin/env bash
# Create .venv with the project installed editable, its demo data and its development tools, unless that was
# done for this pyproject.toml and these locks, and prepare Spark's classes in it. Two runs at once wait for each other; a
# run that is cut starts over. Nothing is installed, or run to build something, whose hash is not in a lock.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

venv=$repo_root/.venv
mkdir -p "$build_dir"
exec 9>"$build_dir/venv.lock"
flock 9

here=$repo_root/docker
stamp=$({
    sed -n '/^\[build-system\]/,/^\[tool\.ruff\]/p' "$repo_root/pyproject.toml"
    cat "$here/build.lock" "$here/requirements.lock" "$here/venv.sh"
} | sha256sum | cut -c1-16)
if [ "$(cat "$venv/stamp" 2>/dev/null || true)" != "$stamp" ]; then
    if [ ! -x "$venv/bin/pip" ]; then
        "${PYTHON:-python3}" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
            fail "${PYTHON:-python3} is older than Python 3.11; name another one with PYTHON="
        say "creating .venv"
        rm -rf "$venv"
        "${PYTHON:-python3}" -m venv "$venv"
    fi
    say "installing the project and its tools into .venv"
    pip=("$venv/bin/pip" --disable-pip-version-check install)
    [ -t 2 ] || pip+=(--quiet) # a person sees each package come, a log only what fails
    "${pip[@]}" --require-hashes --requirement "$here/build.lock" >&2
    # Some packages come as sources: they are built with what build.lock has, not with whatever is newest today.
    "${pip[@]}" --require-hashes --no-build-isolation --use-pep517 --requirement "$here/requirements.lock" >&2
    "${pip[@]}" --no-deps --no-build-isolation --use-pep517 --editable "$repo_root" >&2
    "$venv/bin/pip" --quiet --disable-pip-version-check check >&2
    printf '%s\n' "$stamp" >"$venv/stamp"
fi

# Once for this Java and this Spark; nothing to do without a Java, and no harm if it fails.
while read -r line; do say "$line"; done < <(
    cd "$repo_root" && "$venv/bin/python" -m bookkeeper.replay.make_archive 2>"$build_dir/class-archive.log" || true
)

# Where the environment forbids to write bytecode, each of the many processes would compile the project's modules anew.
"$venv/bin/python" -m compileall -q -j 2 "$repo_root"/{bookkeeper,combiners,shell,tests}
