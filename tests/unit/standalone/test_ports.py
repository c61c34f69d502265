"""Free ports: two clusters that one process makes never get the same port, although none listens yet."""

from __future__ import annotations

import itertools
import socket

import pytest

from bookkeeper.errors import UnavailableError
from bookkeeper.standalone import ports
from bookkeeper.standalone.ports import HOST, PORTS, free_ports


def test_no_port_is_chosen_twice_before_all_were_tried() -> None:
    chosen = [port for _ in range(500) for port in free_ports(2)]
    assert len(set(chosen)) == len(chosen)
    assert set(chosen) <= set(PORTS)


def test_a_port_with_a_server_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    taken, free = free_ports(2)
    monkeypatch.setattr(ports, "_order", itertools.cycle([taken, free]))
    with socket.socket() as server:
        server.bind((HOST, taken))
        server.listen()
        assert free_ports(1) == [free]


def test_too_few_ports_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_order", itertools.cycle(list[int]()))
    with pytest.raises(UnavailableError, match="no 1 free TCP ports"):
        free_ports(1)
