"""is_port_open: tells whether the netlink socket that made a change is still open."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from knft.kernel import netlink_sockets
from knft.kernel.netlink_sockets import is_port_open
from knft.kernel.notifications import ForeignChangeMonitor
from tests.support.lab.namespace import Namespace
from tests.support.nft_process import library_in

NETFILTER, ROUTE = 12, 0
PORT_ID = 0x6B6E0001


@pytest.fixture
def opened(namespace: Namespace) -> Iterator[socket.socket]:
    with namespace.entered(), socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETFILTER) as made:
        made.bind((PORT_ID, 0))
        yield made


@pytest.mark.kernel
def test_port_is_open_until_its_socket_is_closed(opened: socket.socket) -> None:
    assert is_port_open(PORT_ID)
    assert not is_port_open(PORT_ID + 1)
    opened.close()
    assert not is_port_open(PORT_ID)


@pytest.mark.kernel
@pytest.mark.usefixtures("opened")
def test_other_network_namespaces_and_protocols_do_not_count() -> None:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, ROUTE) as route:
        route.bind((PORT_ID + 1, 0))
        assert not is_port_open(PORT_ID + 1)
    other = Namespace.create("other")
    with other.entered():
        assert not is_port_open(PORT_ID)
    other.close()


@pytest.mark.kernel
def test_change_names_the_socket_of_its_process(namespace: Namespace) -> None:
    """libnftables keeps its socket open, and ``nft`` ends after its change."""
    table = "table ip knft { chain services { accept; }; }"
    with ForeignChangeMonitor("knft") as monitor:
        library_in(namespace).run(table)
        (change,) = monitor.receive(10)
        assert is_port_open(change.port_id)
        namespace.run(["nft", "-f", "-"], stdin=table)
        (change,) = monitor.receive(10)
        assert change.port_id
        assert not is_port_open(change.port_id)


def test_no_port_is_open_if_proc_cannot_be_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(netlink_sockets, "_SOCKETS", tmp_path / "missing")
    assert not is_port_open(0)
