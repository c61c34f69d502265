#!/usr/bin/env bash
# Build the image bookkeeper-hbase from what assemble.sh put together, and print its name with a tag that
# is the digest of that: the same sources give the same name, and an image that exists is not built again.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

engine_answers || fail "no container engine answers: run 'make system-deps'"
"$repo_root/docker/hbase/assemble.sh"
tag=$(cat "$build_dir/hbase/stamp" "$repo_root/docker/hbase/Dockerfile" | sha256sum | cut -c1-16)
image=bookkeeper-hbase:$tag

exec 9>"$build_dir/image.lock"
flock 9
if ! docker image inspect "$image" >/dev/null 2>&1; then
    base=$("$repo_root/docker/hbase/base-image.sh")
    say "building $image on $base"
    DOCKER_BUILDKIT=0 docker build --quiet --build-arg "BASE_IMAGE=$base" --tag "$image" \
        --file "$repo_root/docker/hbase/Dockerfile" "$build_dir/hbase" >&2
fi
printf '%s\n' "$image"
