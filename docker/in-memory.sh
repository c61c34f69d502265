#!/usr/bin/env bash
# Runs a command whose temporary files lie in memory where there is room for them, else on disk.
# Usage: docker/in-memory.sh COMMAND [ARGUMENT...]
#
# Tests of processes that die need no disk: what they wrote outlives them in memory, too. A sync to memory costs nothing.
# A TMPDIR that is set stays as it is, and so do the files below it.
set -euo pipefail

memory=/dev/shm
room_kib=$((6 << 20))      # of the file system
available_kib=$((12 << 20)) # of the machine: JVMs of tests need some, too

has_room() {
    local room available
    ! grep -q "^[^ ]* $memory [^ ]* [^ ]*noexec" /proc/mounts || return 1 # tests run scripts of their own
    room=$(df --output=avail "$memory" 2>/dev/null | tail -n 1) || return 1
    available=$(awk '$1 == "MemAvailable:" { print $2 }' /proc/meminfo)
    [ "${room:-0}" -ge "$room_kib" ] && [ "${available:-0}" -ge "$available_kib" ]
}

if [ -n "${TMPDIR:-}" ] || ! has_room; then
    exec "$@"
fi
remove() {
    rm -rf "$1" || echo "$1 stays; 'make clean' unmounts what is mounted below it" >&2
}
for left in "$memory"/bookkeeper-*.*; do # of a run that was killed
    owner=${left#"$memory"/bookkeeper-}
    [ ! -d "$left" ] || [ -d "/proc/${owner%%.*}" ] || remove "$left"
done
TMPDIR=$(mktemp -d "$memory/bookkeeper-$$.XXXXXX")
export TMPDIR
echo "temporary files are in $TMPDIR until the end (TMPDIR=/tmp keeps them)" >&2
trap 'remove "$TMPDIR"' EXIT
"$@"
