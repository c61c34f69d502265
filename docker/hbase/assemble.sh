#!/usr/bin/env bash
# Put a runnable HBase together: lib/*.jar from Maven Central, the programs of ours, their logging. The manifest of our
# programs.jar names the jars of lib: it is the class path.
#
#   assemble.sh           under build/hbase: one HBase in one JVM, and the Thrift gateway
#   assemble.sh cluster   under build/hbase-cluster: the servers of an HBase cluster, and HDFS below it, for tests
#
# For the first one, the archive of its classes follows (classes.jsa, with which a start costs 40 % less CPU time).
#
# Does nothing when that was done from the same sources; the last step is one rename, so a run that
# is cut leaves the earlier result or none. Two runs at once wait for each other. The jars are those of jars.sha256 and no
# others; after a change of pom.xml, RENEW=1 writes that file anew: look at what changed in it before it is committed.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

here=$repo_root/docker/hbase
name=hbase
if [ $# -gt 0 ]; then
    [ "$1" = cluster ] || fail "'cluster' or nothing expected, not '$1'"
    here=$here/cluster
    name=hbase-cluster
fi
conf=$repo_root/docker/hbase/conf
target=$build_dir/$name
part=$build_dir/$name.part

mkdir -p "$build_dir"
exec 9>"$build_dir/$name.lock"
flock 9

stamp=$(cd "$here" && cat "$repo_root/docker/hbase/assemble.sh" pom.xml jars.sha256 "$conf"/* src/bookkeeper/hbase/*.java |
    sha256sum | cut -c1-16)
# HBase runs for a moment, and its JVM archives the classes. The JVM takes an archive only for a class path at the same
# place, and fails on one that is cut: so this is done where the jars stay, and the last step is a rename. Another Java
# ignores the archive. Without it HBase starts slower.
archive_classes() {
    [ "$name" = hbase ] && [ ! -f "$target/classes.jsa" ] || return 0
    local scratch written=$target/.classes.jsa
    scratch=$(mktemp -d)
    say "preparing the classes of build/$name, so that it starts with less CPU time"
    if "$(find_java_home)/bin/java" -Xmx512m -XX:+UseSerialGC -Djava.net.preferIPv4Stack=true \
        --add-opens=java.base/java.nio=ALL-UNNAMED --add-opens=java.base/java.lang=ALL-UNNAMED \
        -XX:ArchiveClassesAtExit="$written" -Xlog:cds=off -Xlog:cds+dynamic=off \
        -cp "$target/programs.jar:$target/conf" bookkeeper.hbase.ClassArchive "$scratch" >"$scratch/log" 2>&1; then
        sync "$written"
        mv "$written" "$target/classes.jsa"
    else
        say "the classes can't be prepared, HBase starts slower without: $(tail -n 3 "$scratch/log")"
    fi
    rm -rf "$scratch"
}

[ "$(cat "$target/stamp" 2>/dev/null || true)" = "$stamp" ] && {
    archive_classes
    exit 0
}

java_home=$(find_java_home javac) || fail "no Java 17 compiler: run 'make system-deps'"
command -v mvn >/dev/null || fail "no Maven: run 'make system-deps'"

say "fetching the jars of build/$name"
rm -rf "$part"
mkdir -p "$part/lib" "$part/conf" "$part/classes"
JAVA_HOME=$java_home mvn --batch-mode --quiet --strict-checksums --file "$here/pom.xml" \
    dependency:copy-dependencies -DoutputDirectory="$part/lib" >&2
checksums() { (cd "$part/lib" && LC_ALL=C sha256sum -- *.jar); }
[ "${RENEW:-0}" = 0 ] || checksums >"$here/jars.sha256"
diff "$here/jars.sha256" <(checksums) >&2 || fail "the jars are not those of ${here#"$repo_root"/}/jars.sha256 (see above)"
say "compiling our programs"
# sun.misc.Signal is the only way to a clean stop that does not race HBase's own shutdown hooks; javac warns of it.
"$java_home/bin/javac" -proc:none -XDignore.symbol.file -d "$part/classes" -cp "$part/lib/*" \
    "$here"/src/bookkeeper/hbase/*.java
jars=$(cd "$part" && LC_ALL=C && echo lib/*.jar)
printf 'Class-Path: %s\n' "$jars" | fold -b -w 70 | sed '2,$s/^/ /' >"$part/manifest" # a line has 72 bytes at most
"$java_home/bin/jar" --create --file "$part/programs.jar" --manifest "$part/manifest" -C "$part/classes" .
rm -r "$part/manifest" "$part/classes"
cp "$conf"/* "$part/conf/"
printf '%s\n' "$stamp" >"$part/stamp"
rm -rf "$target"
mv "$part" "$target"
archive_classes
say "HBase is in build/$name ($(find "$target/lib" -name '*.jar' | wc -l) jars)"
