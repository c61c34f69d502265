"""Rounds: proof that a leader read the books of this cluster as they are, before it deletes what they do not name.

Arrives: the two stores. Leaves: what was read, or LostBooksError. A round's number is in the books before anything of
the round is read, and still there behind it. So a table is noticed that was dropped, emptied or replaced by another one
meanwhile, and at any time one that was put back from a copy older than the latest round. Survives a crash: the numbers.
A cut between them leaves the books one ahead, and the next round writes the same number again (rule R1: its value is
empty). Law L2; see ``metadata.owner``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from bookkeeper.coordination.coordination_protocol import Coordination
from bookkeeper.errors import LostBooksError, PermanentError
from bookkeeper.master.reign.leader import Reign
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import MetadataTable, RowPut
from bookkeeper.metadata.owner import (
    COPY_STEP,
    ROUND_NAME,
    check_owner,
    check_round,
    is_ahead,
    lost,
    read_owner_row,
    round_of,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Rounds:
    """One reign's. ``url`` names the table in errors."""

    table: MetadataTable
    coordination: Coordination
    reign: Reign
    instance_id: str
    url: str

    def proven(self, read: Callable[[], T]) -> T:
        """The result of ``read``, read within a round of its own. Raises LostBooksError, TransientError."""
        number = self.begin()
        found = read()
        after = self._round_in_books()
        if not is_proof(after, number):
            raise LostBooksError(
                f"{self._name} is of round {after}, and round {number} had begun in it: it was replaced while it was "
                "read, or another master leads; what was read counts for nothing"
            )
        return found

    def begin(self) -> int:
        """Begin a round; returns its number. Raises LostBooksError when one of the two stores is an older copy."""
        known = self.coordination.number(ROUND_NAME)
        found = self._round_in_books()
        self._refuse_older(found, known)
        number = known + 1
        self.reign.check()
        self.table.put([RowPut(keys.owner_row(), {keys.ROUND: values.EMPTY})], number)
        self.coordination.raise_number(ROUND_NAME, number)
        return number

    def _round_in_books(self) -> int:
        """The round of the books. Raises LostBooksError when they are another instance's, or nobody's."""
        row = read_owner_row(self.table)
        try:
            check_owner(self._name, row, self.instance_id)
        except PermanentError as error:
            raise lost(error) from error
        return round_of(row)

    def _refuse_older(self, found: int, known: int) -> None:
        try:
            check_round(self._name, found, known)
        except PermanentError as error:
            raise lost(error) from error
        if is_ahead(found, known):
            raise LostBooksError(
                f"the coordination store knows of round {known} only, and {self._name} is of round {found}: the store "
                f"is an older copy; {COPY_STEP}"
            )

    @property
    def _name(self) -> str:
        return f"the metadata table {self.url}"


def is_proof(found: int, number: int) -> bool:
    """Whether books of round ``found`` are those in which this round began, and no other one did since."""
    return found == number
