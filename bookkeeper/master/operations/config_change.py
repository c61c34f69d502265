"""The base of operations that change the configuration and wait for the tservers. Rule: R14."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping
from typing import cast

from msgspec import Struct

from bookkeeper.master.fate.engine import Args, Call, Done, Next, Outcome, Step, Wait
from bookkeeper.master.operations.context import Context

CONFIRM_AGAIN_MS = 50


class ConfigChange(Struct, frozen=True):
    """A change of the configuration (:class:`bookkeeper.master.fate.engine.Operation`): one step that writes, then
    ``confirm``. It is in force on every tserver when the operation ends.
    """

    context: Context
    first: str = "write"

    @abstractmethod
    def locks(self, args: Args, /) -> Collection[str]:
        """See :meth:`bookkeeper.master.fate.engine.Operation.locks`."""

    @property
    def steps(self) -> Mapping[str, Step]:
        """:meth:`write` under the name of the first step, then confirm."""
        return {self.first: self.write, "confirm": self.confirm}

    @abstractmethod
    def write(self, call: Call) -> Outcome:
        """Write the change; the next step is ``confirm``."""

    def confirm(self, call: Call) -> Outcome:
        """Wait until every tserver obeys the configuration. The step stores the generation when the operation first
        reaches it, so later changes do not prolong the wait.
        """
        generation = call.state.get("generation")
        if generation is None:
            return Next("confirm", {**call.state, "generation": self.context.stores.coordination.settled_generation()})
        waiting_for = self.context.tservers.unconfirmed(cast(int, generation))
        if waiting_for:
            return Wait(f"waiting for tservers to confirm: {'; '.join(waiting_for)}", CONFIRM_AGAIN_MS)
        return Done()
