"""The candidacy of a host for the lead of a tablet, as it stands in the coordination store (E-19).

The master decides whether a candidate may lead, by the row of the tablet: a candidacy has all that it needs for that.
"""

from __future__ import annotations

from msgspec import Struct

from bookkeeper.strict_json import encode_json, number, read_fields, text, typed


class TabletCandidate(Struct, frozen=True):
    """A replica: its host, placement and disk, its newest state (0 = none), and the states of which it has each
    file.
    """

    host: str
    placement: str
    incarnation: str
    root: int
    complete: tuple[int, ...]

    def encode(self) -> bytes:
        """The value of a candidacy."""
        fields = {
            "host": self.host,
            "placement": self.placement,
            "incarnation": self.incarnation,
            "root": self.root,
            "complete": list(self.complete),
        }
        return encode_json(TabletCandidate.decode, fields)

    @classmethod
    def decode(cls, raw: bytes) -> TabletCandidate:
        """Inverse of :meth:`encode`. Raises CorruptionError."""
        found = read_fields(raw, "a candidacy", "host", "placement", "incarnation", "root", "complete")
        states = dict(enumerate(typed(found, "complete", list)))
        return cls(
            text(found, "host"),
            text(found, "placement"),
            text(found, "incarnation"),
            number(found, "root"),
            tuple(number(states, index) for index in states),
        )


def election_of(table_id: str, directory: str) -> str:
    """The election of a tablet, which has its directory for as long as it lives."""
    return f"{table_id}/{directory}"
