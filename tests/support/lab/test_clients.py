"""Client processes record every connection, and TCP retransmissions."""

import itertools
import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.lab.clients import NONE, ClientProcesses, ClientTarget, Connection
from tests.support.lab.namespace import Namespace
from tests.support.lab.responder_process import ResponderProcess
from tests.support.lab.topology import Lab
from tests.support.lab.transports import PORT, TRANSPORTS

pytestmark = pytest.mark.kernel


def _call(lab: Lab, targets: Sequence[ClientTarget], folder: Path, count: int) -> list[Connection]:
    outside, server = lab.host("outside"), lab.host("local-1")
    with ResponderProcess([server], [PORT]), ClientProcesses({outside: targets}, folder, count, seed=1) as callers:
        while callers.are_running:
            time.sleep(0.01)
    return list(callers.connections(outside))


def test_every_connection_is_recorded(lab: Lab, tmp_path: Path) -> None:
    targets = [ClientTarget(way.address_of(lab.host("local-1")), PORT, way.protocol) for way in TRANSPORTS]
    calls = _call(lab, targets, tmp_path, 200)
    assert len(calls) == 200
    assert {call[-4:] for call in calls} == {("local-1", PORT, 0, NONE)}
    assert {call.target for call in calls} == set(range(len(TRANSPORTS)))
    assert all(former.ended <= call.started <= call.ended for former, call in itertools.pairwise(calls))


def test_ports_that_other_sockets_use_are_left_out(lab: Lab, tmp_path: Path) -> None:
    with ExitStack() as others:
        with lab.host("outside").namespace.entered():
            for port in range(20000, 20005):
                others.enter_context(socket.create_server(("", port)))
        calls = _call(lab, [ClientTarget(lab.host("local-1").ipv4, PORT, "tcp")], tmp_path, 2)
    assert [call[-4:] for call in calls] == [("local-1", PORT, 0, NONE)] * 2


def test_retransmission_is_recorded(lab: Lab, node: Namespace, tmp_path: Path) -> None:
    """A rule drops every second SYN."""
    rule = "tcp flags & (syn | ack) == syn numgen inc mod 2 0 drop"
    node.run(["nft", "-f", "-"], stdin=f"table ip t {{ chain c {{ type filter hook forward priority 0;\n{rule}\n}}\n}}")
    calls = _call(lab, [ClientTarget(lab.host("local-1").ipv4, PORT, "tcp")], tmp_path, 2)
    assert [call[-4:] for call in calls] == [("local-1", PORT, 1, NONE)] * 2


def test_refused_connection_is_recorded(lab: Lab, tmp_path: Path) -> None:
    calls = _call(lab, [ClientTarget(lab.host("local-1").ipv4, PORT + 1, "tcp")], tmp_path, 2)
    assert [call[-4:] for call in calls] == [(NONE, 0, 0, "ConnectionRefusedError")] * 2
