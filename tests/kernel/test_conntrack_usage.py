"""Conntrack's statistics, from the kernel's messages."""

import struct

import pytest

from knft.kernel import conntrack_usage
from knft.kernel.conntrack_usage import ConntrackStatistics, conntrack_statistics
from tests.support.lab.namespace import Namespace

pytestmark = pytest.mark.kernel


def test_statistics_of_a_new_namespace_are_zero(namespace: Namespace) -> None:
    del namespace
    assert conntrack_statistics() == ConntrackStatistics(0, 0, 0)


def test_statistics_are_the_sums_of_all_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel counts early drops only if its whole table is full."""

    def answer(*fields: tuple[int, int]) -> bytes:
        return bytes(4) + b"".join(struct.pack("=HHI", 8, kind, 0)[:4] + struct.pack(">I", n) for kind, n in fields)

    answers = [answer((8, 100), (9, 1), (10, 2), (11, 3), (12, 50)), answer((9, 10), (10, 20)), answer()]
    monkeypatch.setattr(conntrack_usage, "dump", lambda *_: answers)
    assert conntrack_statistics() == ConntrackStatistics(11, 22, 3)
