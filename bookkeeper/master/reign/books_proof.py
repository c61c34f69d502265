"""Rounds: the proof that a leader read the present books of this cluster, before it deletes files they do not name.

Arrives: the two stores. Leaves: the rows that were read, or LostBooksError. A round writes its number to the books
before its first read, and expects the same number after its last one. So it detects a table that was dropped, emptied
or replaced during the round, and at any time a table that was restored from a copy older than the latest round. A crash
between the two writes of a number leaves the books one number ahead; the next round writes the same number again (rule
R1: its value is empty). Law L2; see ``metadata.owner``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from msgspec import Struct

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


class Rounds(Struct, frozen=True):
    """The rounds of one reign. ``url`` names the table in errors."""

    table: MetadataTable
    coordination: Coordination
    reign: Reign
    instance_id: str
    url: str

    def read_with_proof(self, read: Callable[[], T]) -> T:
        """The result of ``read``, called within a round of its own. Raises LostBooksError, TransientError."""
        number = self.begin()
        found = read()
        after = self._round_in_books()
        if after != number:  # L2: not the books in which the round began, or a later round began
            raise LostBooksError(
                f"{self._name} was replaced during the read, or another master leads: its round is {after}, and this "
                f"master began round {number}; the read is dropped, and the next run repeats it"
            )
        return found

    def begin(self) -> int:
        """Start a round; returns its number. Raises LostBooksError when one of the two stores is an older copy."""
        known = self.coordination.number(ROUND_NAME)
        found = self._round_in_books()
        self._refuse_older(found, known)
        number = known + 1
        self.reign.check()
        self.table.put([RowPut(keys.owner_row(), {keys.ROUND: values.EMPTY})], number)
        self.coordination.raise_number(ROUND_NAME, number)
        return number

    def _round_in_books(self) -> int:
        """The round of the books. Raises LostBooksError when they belong to another instance or have no owner."""
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
                f"the coordination store is an older copy: its round is {known}, and the round of {self._name} is "
                f"{found}; {COPY_STEP}"
            )

    @property
    def _name(self) -> str:
        return f"the metadata table {self.url}"
