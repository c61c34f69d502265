"""Free ports: two clusters that one process makes never get the same port, although none listens yet."""

from __future__ import annotations

import itertools
import socket

import pytest

from bookkeeper.errors import UnavailableError
from bookkeeper.standalone import ports
from bookkeeper.standalone.ports import HOST, PORTS, free_ports
from tests.support.faults import fault


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


def a_port_of_another_address_is_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """A master may bind any address of its machine."""
    taken, free = free_ports(2)
    monkeypatch.setattr(ports, "_order", itertools.cycle([taken, free]))
    with socket.create_server(("127.0.0.2", taken)):
        assert ports.free_ports(1) == [free], "a master of a new cluster can't listen at its port"


def test_a_port_of_another_address_is_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    a_port_of_another_address_is_not_free(monkeypatch)


def test_without_the_look_at_every_address_a_port_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with fault("ports-free-at-loopback-alone"), pytest.raises(AssertionError, match="can't listen at its port"):
        a_port_of_another_address_is_not_free(monkeypatch)
