"""Callers write down every call, and notice what TCP would hide."""

import itertools
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from .answering import Answering
from .calls import NONE, Call, Callers, Target
from .namespace import Namespace
from .topology import Lab
from .ways import PORT, WAYS

pytestmark = pytest.mark.kernel


def _call(lab: Lab, targets: Sequence[Target], folder: Path, count: int) -> list[Call]:
    outside, server = lab.host("outside"), lab.host("local-1")
    with Answering([server], [PORT]), Callers({outside: targets}, folder, count, seed=1) as callers:
        while callers.are_calling:
            time.sleep(0.01)
    return list(callers.calls(outside))


def test_every_call_is_written_down(lab: Lab, tmp_path: Path) -> None:
    targets = [Target(way.to(lab.host("local-1")), PORT, way.protocol) for way in WAYS]
    calls = _call(lab, targets, tmp_path, 200)
    assert len(calls) == 200
    assert {call[-4:] for call in calls} == {("local-1", PORT, 0, NONE)}
    assert {call.target for call in calls} == set(range(len(WAYS)))
    assert all(former.ended <= call.begun <= call.ended for former, call in itertools.pairwise(calls))


def test_a_packet_that_tcp_sends_again_is_noticed(lab: Lab, node: Namespace, tmp_path: Path) -> None:
    """Every second of those that open a connection is dropped."""
    rule = "tcp flags & (syn | ack) == syn numgen inc mod 2 0 drop"
    node.run(["nft", "-f", "-"], stdin=f"table ip t {{ chain c {{ type filter hook forward priority 0;\n{rule}\n}}\n}}")
    calls = _call(lab, [Target(lab.host("local-1").ipv4, PORT, "tcp")], tmp_path, 2)
    assert [call[-4:] for call in calls] == [("local-1", PORT, 1, NONE)] * 2


def test_nobody_answers_where_nobody_listens(lab: Lab, tmp_path: Path) -> None:
    calls = _call(lab, [Target(lab.host("local-1").ipv4, PORT + 1, "tcp")], tmp_path, 2)
    assert [call[-4:] for call in calls] == [(NONE, 0, 0, "ConnectionRefusedError")] * 2
