"""Runs an input in JSON: replicas, a rule set, steps; returns replies, offers and the replicas afterwards."""

from __future__ import annotations

from typing import Any

from tests.support.segment_simulation.codec import Codec, InputError, need
from tests.support.segment_simulation.play import Play
from tests.support.segment_simulation.steps import describe, take


def run(given: Any) -> dict[str, Any]:
    """The output for an input. Raises InputError with the number of the step that is wrong."""
    codec = Codec()
    play = Play(codec.read(need(given, dict, "the input")), codec)
    replies = []
    for number, step in enumerate(need(given.get("steps"), list, "steps"), 1):
        try:
            replies.append(take(play, need(step, dict, "a step")))
        except InputError as wrong:
            raise InputError(f"step {number}: {wrong}") from wrong
    named = {tablet: codec.ids.write(books.named.state_id) for tablet, books in play.world.books.items() if books.named}
    return {
        "rules": play.world.rules.name,
        "replies": replies,
        "offers": [offer for reply in replies for offer in reply.get("offers", ())],
        "replicas": codec.write(play.world),
        "messages": {str(number): describe(play, message) for number, message in play.world.messages.items()},
        "named": named,
    }
