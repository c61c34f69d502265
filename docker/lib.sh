# Functions shared by the scripts in this directory; sourced, never run.

repo_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build_dir=$repo_root/build

say() { printf '%s: %s\n' "$(basename "$0" .sh)" "$*" >&2; }

fail() {
    say "$*"
    exit 1
}

# Print the major version of the Java below $1 (a home directory), nothing if there is none.
java_major() {
    [ -x "$1/bin/java" ] || return 0
    if [ -r "$1/release" ]; then
        sed -n 's/^JAVA_VERSION="\([0-9]*\).*/\1/p' "$1/release"
    else
        "$1/bin/java" -version 2>&1 | sed -n '1s/.*version "\([0-9]*\).*/\1/p'
    fi
}

# Print the home of a Java that both HBase 2.6 and Spark 4 run on (17 to 21): JAVA_HOME, PATH, Debian's places.
# With "javac" as $1, one that can compile. Returns 1 if there is none.
find_java_home() {
    local program=${1:-java} home major
    for home in "${JAVA_HOME:-}" \
        "$(dirname "$(dirname "$(readlink -f "$(command -v "$program" || true)" 2>/dev/null || true)")")" \
        /usr/lib/jvm/java-17-openjdk-* /usr/lib/jvm/java-21-openjdk-*; do
        [ -x "$home/bin/$program" ] || continue
        major=$(java_major "$home")
        if [ "${major:-0}" -ge 17 ] && [ "$major" -le 21 ]; then
            printf '%s\n' "$home"
            return 0
        fi
    done
    return 1
}

engine_answers() { docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }

# Run the rest as root, or say that it can't be done.
as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        fail "'$*' needs root, and there is no sudo"
    fi
}
