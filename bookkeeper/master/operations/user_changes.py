"""The operation that sets the authorizations of a user. The cluster does not verify the user that a client names."""

from __future__ import annotations

from collections.abc import Collection
from typing import cast

from bookkeeper.coordination.config_changes import set_authorizations
from bookkeeper.errors import InvalidInputError
from bookkeeper.master.fate.engine import Args, Call, Next, Outcome
from bookkeeper.master.operations.config_change import ConfigChange
from bookkeeper.master.operations.context import text, texts
from bookkeeper.metadata.values import Json

AUTHORIZATIONS_MAX = 1_000
NAME_LENGTH_MAX = 255


def set_authorizations_args(user: str, authorizations: Collection[str]) -> Args:
    """Arguments of ``set_authorizations``. Raises InvalidInputError."""
    for name in (user, *authorizations):
        if not name or len(name) > NAME_LENGTH_MAX or not name.isprintable():
            raise InvalidInputError(f"{name!r} can't be a user or an authorization; use up to 255 printable characters")
    if len(authorizations) > AUTHORIZATIONS_MAX:
        raise InvalidInputError(
            f"{len(authorizations)} authorizations are too many; a user has at most {AUTHORIZATIONS_MAX}"
        )
    return {"user": user, "authorizations": cast("list[Json]", sorted(set(authorizations)))}


class SetAuthorizations(ConfigChange, frozen=True):
    """Sets the authorizations of one user."""

    def locks(self, args: Args) -> Collection[str]:
        """One change of a user at a time."""
        return (f"user {text(args, 'user')}",)

    def write(self, call: Call) -> Outcome:
        """Write the user's record."""
        set_authorizations(
            self.context.stores.coordination, text(call.args, "user"), texts(call.args, "authorizations")
        )
        return Next("confirm", {})
