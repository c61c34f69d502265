#!/usr/bin/env bash
# Print the name of a base image with a Java 17 runtime that this engine has, getting one if need be:
# BASE_IMAGE if it is set; the one made here earlier; the public one if a registry answers; else one made
# from Debian's own packages with debootstrap (needs root, about a minute) from this machine's mirror.
#
# The public one is named by the digest of its manifest list in the Dockerfile: the engine refuses other content. What
# debootstrap fetches is signed by Debian, and is as new as the mirror: its versions are in the image's labels.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

public=$(sed -n 's/^ARG BASE_IMAGE=//p' "$repo_root/docker/hbase/Dockerfile")
made=bookkeeper-base:bookworm-java17
pull_s_max=60

have() { docker image inspect "$1" >/dev/null 2>&1; }

debian_mirror() {
    local found
    found=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/*.sources /etc/apt/sources.list.d/*.list 2>/dev/null |
        sed -n -e 's/^URIs: *\([^ ]*\).*/\1/p' -e 's/^deb \(\[[^]]*\] \)\?\([^ ]*\).*/\2/p' |
        grep -v -e security -e updates | head -n 1)
    [ -n "$found" ] || fail "no Debian mirror in this machine's apt sources"
    printf '%s\n' "$found"
}

# The packages of a root directory that matter here, with their versions.
versions() {
    as_root chroot "$1" dpkg-query --show --showformat '${Package}=${Version} ' base-files libc6 openjdk-17-jre-headless
}

make_base() {
    local root
    export PATH=$PATH:/usr/sbin:/sbin
    command -v debootstrap >/dev/null || fail "no debootstrap: run 'make system-deps'"
    root=$(mktemp -d "${TMPDIR:-/var/tmp}/bookkeeper-base.XXXXXX")
    # shellcheck disable=SC2064
    trap "as_root rm -rf '$root'" EXIT
    say "no registry answers: making $made with debootstrap"
    as_root debootstrap --variant=minbase --include=openjdk-17-jre-headless bookworm "$root" "$(debian_mirror)" \
        >"$build_dir/debootstrap.log" 2>&1 ||
        { tail -n 5 "$build_dir/debootstrap.log" >&2; fail "debootstrap failed; its log is build/debootstrap.log"; }
    as_root tar -C "$root" --exclude=./var/cache/apt --exclude=./var/lib/apt/lists --exclude=./usr/share/doc \
        --exclude=./usr/share/man --exclude=./usr/share/locale --exclude='./dev/*' -cf - . |
        docker import --change "LABEL packages=\"$(versions "$root")\"" - "$made" >/dev/null
}

mkdir -p "$build_dir"
exec 9>"$build_dir/base-image.lock"
flock 9

if [ -n "${BASE_IMAGE:-}" ]; then
    image=$BASE_IMAGE
elif have "$made"; then
    image=$made
elif have "$public" || timeout "$pull_s_max" docker pull --quiet "$public" >/dev/null 2>&1; then
    image=$public
else
    make_base
    image=$made
fi
printf '%s\n' "$image"
