"""Fault switches of hosts on several machines, which share no directory."""

from __future__ import annotations

from tests.support.faults.switch import Switch

MACHINES: dict[str, Switch] = {
    "logs-in-the-hosts-own-volume": Switch(
        "bookkeeper.tserver.process",
        "open_host",
        old='if settings.storage.volume == "none":',
        new="if False:",
        breaks="the logs of a tserver lie in a directory in which no other host looks, and count as gone",
    ),
    "a-table-on-one-machine": Switch(
        "bookkeeper.master.operations.volume_need",
        "refuse_without_volume",
        old="if not context.settings.has_volume:",
        new="if False:",
        breaks="a tablet is served by a host that has not its files, or its files are those of one machine",
    ),
}
