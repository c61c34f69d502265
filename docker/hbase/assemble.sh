#!/usr/bin/env bash
# Put a runnable HBase together: lib/*.jar from Maven Central, the programs of ours, their logging.
#
#   assemble.sh           under build/hbase: one HBase in one JVM, and the Thrift gateway
#   assemble.sh cluster   under build/hbase-cluster: the servers of an HBase cluster, and HDFS below it, for tests
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
[ "$(cat "$target/stamp" 2>/dev/null || true)" = "$stamp" ] && exit 0

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
cp "$conf"/* "$part/conf/"
printf '%s\n' "$stamp" >"$part/stamp"
rm -rf "$target"
mv "$part" "$target"
say "HBase is in build/$name ($(find "$target/lib" -name '*.jar' | wc -l) jars)"
