"""An import and an export as operations of the product's engine: their holds and logs are the product's own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import cast

from bookkeeper.bulk.adoption import import_directory
from bookkeeper.bulk.booked_segment import segment_ref
from bookkeeper.errors import TransientError
from bookkeeper.master.fate.engine import Args, Call, Done, Next, Outcome, Step, Wait
from bookkeeper.master.index.log_files import IMPORT_SESSION
from bookkeeper.master.operations.context import text, texts
from bookkeeper.master.operations.holds import hold_named, put_holds, put_log_holds, release_holds
from bookkeeper.master.reign.reign_stores import ReignStores
from bookkeeper.master.splits.split_rules import TabletFacts, facts_of
from bookkeeper.metadata import keys
from bookkeeper.metadata.values import Json
from bookkeeper.model import StreamKey
from bookkeeper.rpc.contract.messages import ImportedLog, ImportedSegment
from bookkeeper.storage.volume.names import log_directory
from bookkeeper.storage.wal.writing.seal import SEAL_SUFFIX
from tests.support.adoption_simulation.cluster import TABLE, Cluster, content_of, entry_of
from tests.support.adoption_simulation.nodes import TServer, name_files, order
from tests.support.simulation.cells import short
from tests.support.simulation.imports import SimUuid

IMPORT_KIND, EXPORT_KIND = "import_directory", "export_table"

AGAIN_MS = 300


@dataclass(frozen=True, slots=True)
class ModelImport:
    """As ``ImportDirectory``: files of each attempt, their logs, an order to each tablet, the end of the holds."""

    cluster: Cluster
    stores: ReignStores
    find: Callable[[bytes], TServer | None]
    first: str = "convert"

    def locks(self, args: Args) -> Collection[str]:
        """None: imports do not meet in a model."""
        del args
        return ()

    @property
    def steps(self) -> Mapping[str, Step]:
        """convert, adopt, clear."""
        return {"convert": self.convert, "adopt": self.adopt, "clear": self.clear}

    def convert(self, call: Call) -> Outcome:
        """Hold files, then make them."""
        attempt, labels = SimUuid.uuid4().hex, texts(call.args, "labels")
        directory = f"{import_directory(TABLE, text(call.args, 'request'))}/{attempt}"
        names = [f"{directory}/{number:06d}.parquet" for number in range(len(labels))]
        put_holds(self.stores, call.txid, names)
        for name, label in zip(names, labels, strict=True):
            self.cluster.volume.create(name, [content_of(label)]).close()
        logs: list[Json] = []
        refs = [segment_ref(name, entry_of(content_of(label))) for name, label in zip(names, labels, strict=True)]
        for number in range(len(self.cluster.rows) if self.cluster.has_targets else 0):
            log = f"{log_directory(IMPORT_SESSION)}/{attempt}-{number}.wal"
            name_files(self.cluster, log, partial(put_log_holds, self.stores), refs)
            logs.append(log)
        return Next("adopt", {"names": cast("list[Json]", names), "logs": logs})

    def adopt(self, call: Call) -> Outcome:
        """Each tablet takes all files."""
        names, logs, labels = texts(call.state, "names"), texts(call.state, "logs"), texts(call.args, "labels")
        entries = [entry_of(content_of(label)).encode() for label in labels]
        parts = tuple(ImportedSegment(name, entry) for name, entry in zip(names, entries, strict=True))
        by_key = dict(zip(self.cluster.rows, logs, strict=False))
        stream = StreamKey("id-west", text(call.args, "request"), TABLE, TABLE, 0)

        def log_of(key: bytes) -> ImportedLog | None:
            return ImportedLog(by_key[key], len(labels), 7, 1) if key in by_key else None

        try:
            order(self.cluster, self.find, stream, parts, log_of)
        except TransientError as error:
            return Wait(error.message, AGAIN_MS)
        self.cluster.taken.update(labels)
        return Next("clear", call.state)

    def clear(self, call: Call) -> Outcome:
        """Tablets and logs decide about the files."""
        for log in texts(call.state, "logs"):
            if not self.cluster.volume.exists(log + SEAL_SUFFIX):
                self.cluster.volume.create(log + SEAL_SUFFIX, ()).close()
        release_holds(self.stores, call.txid)
        self.cluster.counts["imports"] += 1
        return Done()


@dataclass(frozen=True, slots=True)
class ModelExport:
    """As ``ExportTable``: hold the files that tablets name, read them, end the holds."""

    cluster: Cluster
    stores: ReignStores
    first: str = "pin"

    def locks(self, args: Args) -> Collection[str]:
        """None."""
        del args
        return ()

    @property
    def steps(self) -> Mapping[str, Step]:
        """pin, copy, end."""
        return {"pin": self.pin, "copy": self.copy, "end": self.end}

    def pin(self, call: Call) -> Outcome:
        """Hold what the tablets name."""
        facts = hold_named(self.stores, call.txid, self._facts)
        if facts is None:
            return Wait("compactions replace segments", AGAIN_MS)
        names = sorted({name for tablet in facts for name in tablet.segments})
        self.cluster.copying[call.txid] = names
        return Next("copy", {"names": cast("list[Json]", names)})

    def copy(self, call: Call) -> Outcome:
        """Read the files."""
        for name in texts(call.state, "names"):
            if not self.cluster.volume.exists(name):
                self.cluster.broken.append(f"an export lacks {short(name)}")
        return Next("end", call.state)

    def end(self, call: Call) -> Outcome:
        """The export needs them no more."""
        self.cluster.copying.pop(call.txid, None)
        release_holds(self.stores, call.txid)
        self.cluster.counts["exports"] += 1
        return Done()

    def _facts(self) -> list[TabletFacts]:
        rows = self.stores.table.scan(*keys.table_section(TABLE), ("tablet", "segment"))
        return [facts_of(row) for row in rows if keys.is_tablet(row)]
