#!/usr/bin/env bash
# Install from Debian what this machine lacks, and nothing where all is there.
#
#   system-deps.sh runtime   a Java 17 runtime and Python's venv       (make demo)
#   system-deps.sh hbase     and a Java compiler and Maven              (the real HBase as a process)
#   system-deps.sh machines  and what makes networks                  (make cluster-demo)
#   system-deps.sh all       and a container engine that answers, a browser, promtool, zsh and fish   (make test)
#
# NO_SYSTEM_DEPS=1: touch nothing, say what is missing, exit 0. Runs as root or with sudo.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

engine_wait_s=60
python=${PYTHON:-python3}
packages=()

need() {
    local what=$1
    shift
    say "missing: $what"
    packages+=("$@")
}

look_runtime() {
    "$python" -c 'import ensurepip, venv' 2>/dev/null || need "Python's venv" python3 python3-venv
    find_java_home java >/dev/null || need "a Java 17 runtime" openjdk-17-jre-headless
}

look_hbase() {
    find_java_home javac >/dev/null || need "a Java 17 compiler" openjdk-17-jdk-headless
    command -v mvn >/dev/null || need Maven maven
}

look_machines() {
    command -v ebtables >/dev/null || [ -x /usr/sbin/ebtables ] || need ebtables iptables
    command -v ip >/dev/null || [ -x /usr/sbin/ip ] || need iproute2 iproute2
}

look_engine() {
    engine_answers && return
    [ -n "${DOCKER_HOST:-}" ] && return # an engine elsewhere: nothing to install here changes it
    command -v dockerd >/dev/null || need "a container engine" docker.io
    command -v iptables >/dev/null || [ -x /usr/sbin/iptables ] || need iptables iptables
    command -v debootstrap >/dev/null || [ -x /usr/sbin/debootstrap ] || need debootstrap debootstrap
}

look_browser() {
    command -v chromium >/dev/null || need "a browser" chromium
    command -v chromedriver >/dev/null || need "a driver for it" chromium-driver
}

look_promtool() {
    command -v promtool >/dev/null || need "promtool, which checks alerts" prometheus
}

look_shells() {
    command -v zsh >/dev/null || need "zsh, whose completion is tested" zsh
    command -v fish >/dev/null || need "fish, whose completion is tested" fish
}

install_packages() {
    [ ${#packages[@]} -gt 0 ] || return 0
    if ! command -v apt-get >/dev/null; then
        say "not a Debian system; please install what is missing by its own means"
        return 0
    fi
    say "installing from Debian: ${packages[*]}"
    as_root apt-get update -qq
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}" >&2
}

start_engine() {
    engine_answers && return
    if [ -n "${DOCKER_HOST:-}" ]; then
        say "no engine answers at DOCKER_HOST; tests with containers will be skipped"
    elif [ -d /run/systemd/system ]; then
        say "starting the docker service"
        as_root systemctl start docker || say "the docker service does not start; tests with containers will be skipped"
    elif [ "$(id -u)" -eq 0 ] && command -v dockerd >/dev/null; then
        start_dockerd
    else
        say "no container engine answers and only root can start one; tests with containers will be skipped"
    fi
}

start_dockerd() {
    local log=$build_dir/dockerd.log pid deadline=$((SECONDS + engine_wait_s))
    mkdir -p "$build_dir"
    say "no container engine answers and no systemd runs: starting dockerd, log in build/dockerd.log"
    setsid dockerd </dev/null >"$log" 2>&1 &
    pid=$!
    until engine_answers; do
        if ! kill -0 "$pid" 2>/dev/null || [ $SECONDS -ge $deadline ]; then
            tail -n 5 "$log" >&2
            say "dockerd does not answer; tests with containers will be skipped"
            return 0
        fi
        sleep 0.5
    done
    say "dockerd $(docker version --format '{{.Server.Version}}') answers"
}

level=${1:-all}
case $level in runtime | hbase | machines | all) ;; *) fail "unknown argument '$level': runtime, hbase, machines or all" ;; esac
look_runtime
[ "$level" = runtime ] || look_hbase
[[ $level != machines && $level != all ]] || look_machines
[ "$level" != all ] || { look_engine; look_browser; look_promtool; look_shells; }
if [ "${NO_SYSTEM_DEPS:-0}" = 1 ]; then
    [ ${#packages[@]} -eq 0 ] || say "NO_SYSTEM_DEPS=1: leaving it at that"
    exit 0
fi
install_packages
[ "$level" != all ] || start_engine
