"""The origins of received records, as block headers and messages have them (rule R22). Pure.

Roots are numbered inside a message. Number 0 is the log of the stream that brings the block, so that a block that comes
straight from its root does not repeat the root's name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError
from msgspec import Struct
from msgspec.structs import replace

from bookkeeper.errors import CorruptionError
from bookkeeper.model import RowRange
from bookkeeper.origins import Part, Root, Runs
from bookkeeper.storage.wal.blocks import block_pb2 as pb

Section = tuple[Root, Runs]
"""Records of one root that follow each other in a block, ascending there."""

FEW_RUNS = 16
"""Up to so many runs go into a message one by one."""

_RUNS_TAG = bytes([pb.RootRuns.DESCRIPTOR.fields_by_name["runs"].number << 3 | 2])

EVERY_ROW = RowRange(None, None)


class Claim(Struct, frozen=True):
    """A tablet with this block has all records of ``part`` of the root. ``since`` > 0: the stream that brings the block
    has left out no such record from that offset on.
    """

    root: Root
    part: Part
    since: int = 0


class BlockOrigins(Struct, frozen=True):
    """Origins of the records of a block, in their order; ``records`` () = not retained, because no peer gets them from
    here. ``partial``: other blocks brought some records of the claims. ``row_indices``: only the records at these
    indices are present, None = all; :attr:`present` selects them, because most blocks never need it.
    """

    records: tuple[Section, ...]
    claims: tuple[Claim, ...]
    partial: bool = False
    row_indices: npt.NDArray[np.int64] | None = None

    @property
    def present(self) -> tuple[Section, ...]:
        """The sections of the present records."""
        return self.records if self.row_indices is None else at_indices(self.records, self.row_indices)

    def of(self, mask: npt.NDArray[np.bool_]) -> BlockOrigins:
        """The origins of the present records for which the mask is true."""
        row_indices = np.flatnonzero(mask) if self.row_indices is None else self.row_indices[mask]
        return replace(self, row_indices=row_indices)


def record_count(sections: Iterable[Section]) -> int:
    """The number of records in some sections."""
    return sum(runs.total for _, runs in sections)


def at_indices(sections: Sequence[Section], row_indices: npt.NDArray[np.int64]) -> tuple[Section, ...]:
    """The sections of the records at these ascending indices."""
    found: list[Section] = []
    start = 0
    for root, runs in sections:
        stop = start + runs.total
        low, high = np.searchsorted(row_indices, (start, stop))
        part = Runs.covering(runs.at(row_indices[low:high] - start))
        if len(part):
            found.append((root, part))
        start = stop
    return tuple(found)


def joined(sections: Iterable[Section]) -> tuple[Section, ...]:
    """The same in as few sections as the order of the records allows."""
    found: list[Section] = []
    for root, runs in sections:
        if found and found[-1][0] == root and found[-1][1].last < runs.first:
            found[-1] = (root, found[-1][1] | runs)
        else:
            found.append((root, runs))
    return tuple(found)


def exact_claims(sections: Iterable[Section]) -> tuple[Claim, ...]:
    """Claims of these records and of no others."""
    return tuple(Claim(root, Part(EVERY_ROW, None, runs)) for root, runs in sections)


def of_families(claims: Iterable[Claim], families: Iterable[bytes]) -> tuple[Claim, ...]:
    """The claims that remain when only these families travel."""
    wanted = sorted(families)
    return tuple(
        replace(claim, part=replace(claim.part, family=family))
        for claim in claims
        for family in wanted
        if claim.part.family in (None, family)
    )


def block_origins_to_pb(block_origins: BlockOrigins, own: Root) -> pb.BlockOrigins:
    """``own``: the root of the stream that brings the block, or the message."""
    numbers, records = {own: 0}, block_origins.present
    for root in [root for root, _ in records] + [claim.root for claim in block_origins.claims]:
        numbers.setdefault(root, len(numbers))
    found = pb.BlockOrigins(
        roots=[
            pb.Root(instance_id=root.instance_id, file=root.file, table_id=root.table_id) for root in [*numbers][1:]
        ],
        claims=[
            pb.Claim(
                root=numbers[claim.root],
                runs=claim.part.runs.flat(),
                since=claim.since,
                families=() if claim.part.family is None else (claim.part.family,),
                prev_row=claim.part.rows.prev_row,
                end_row=claim.part.rows.end_row,
            )
            for claim in block_origins.claims
        ],
        partial=block_origins.partial,
    )
    for root, runs in records:
        _set_runs(found.records.add(root=numbers[root]), runs)
    return found


def _set_runs(found: pb.RootRuns, runs: Runs) -> None:
    """Add runs to a message; many of them as their bytes on the wire, which is several times as fast."""
    if len(runs) < FEW_RUNS:
        found.runs.extend(runs.flat())
    else:
        raw = varints(runs.gaps().reshape(-1))
        found.MergeFromString(_RUNS_TAG + varint(len(raw)) + raw)


def varint(number: int) -> bytes:
    """A number from 0 on in protobuf's form: seven bits a byte, the lowest first."""
    found = bytearray()
    while number >= 128:
        found.append(number & 127 | 128)
        number >>= 7
    found.append(number)
    return bytes(found)


def varints(numbers: npt.NDArray[np.int64]) -> bytes:
    """Numbers from 0 on in that form, one behind the other."""
    large = np.flatnonzero(numbers >= 128)
    lowest = numbers.astype(np.uint8)
    if not len(large):
        return lowest.tobytes()
    lowest[large] |= 128
    remaining, positions, higher = numbers[large] >> 7, [], []
    while len(large):
        more = remaining >= 128
        positions.append(large + 1)
        higher.append(remaining & 127 | more << 7)
        large, remaining = large[more], remaining[more] >> 7
    return np.insert(lowest, np.concatenate(positions), np.concatenate(higher).astype(np.uint8)).tobytes()


def block_origins_from_pb(message: pb.BlockOrigins, own: Root) -> BlockOrigins:
    """Inverse of :func:`block_origins_to_pb`; raises CorruptionError."""
    roots = [own, *(Root(root.instance_id, root.file, root.table_id) for root in message.roots)]
    try:
        records = tuple((roots[part.root], _runs(part.runs)) for part in message.records)
        claims = tuple(
            Claim(roots[claim.root], Part(_rows(claim), family, _runs(claim.runs)), claim.since)
            for claim in message.claims
            for family in claim.families or (None,)
        )
    except (ValueError, OverflowError, IndexError) as error:
        raise CorruptionError(f"the origins of a block are damaged: {error}") from error
    return BlockOrigins(records, claims, message.partial)


def _runs(flat: Sequence[int]) -> Runs:
    runs = Runs.from_flat(flat)
    if not len(runs):
        raise ValueError("no offsets")
    return runs


def _rows(claim: pb.Claim) -> RowRange:
    return RowRange(
        claim.prev_row if claim.HasField("prev_row") else None, claim.end_row if claim.HasField("end_row") else None
    )


def parse_block_origins(raw: bytes, own: Root) -> BlockOrigins:
    """The origins in a message; raises CorruptionError."""
    try:
        return block_origins_from_pb(pb.BlockOrigins.FromString(bytes(raw)), own)
    except DecodeError as error:
        raise CorruptionError(f"{len(raw)} bytes are no block origins: {error}") from error
