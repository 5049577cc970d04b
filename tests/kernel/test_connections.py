"""Conntrack entries of all protocols of Services, counted by a key."""

import tracemalloc
from typing import Any

import pytest

from knft.decide.stale_flows import packed_socket
from knft.families import Family
from knft.kernel import netlink_dump
from knft.kernel.connections import Connection, count_connections, open_connections
from tests.support.conntrack_entries import Entry, add_entries, add_many_entries
from tests.support.lab.namespace import Namespace

pytestmark = pytest.mark.kernel

SERVICE = {Family.IPV4: "10.96.0.10", Family.IPV6: "fd00:10:96::10"}
POD = {Family.IPV4: "10.244.1.11", Family.IPV6: "fd00:10:244:1::11"}
CLIENT = {Family.IPV4: "192.0.2.100", Family.IPV6: "2001:db8:1::100"}


def _entries(family: Family) -> list[Entry]:
    service, pod = (SERVICE[family], 80), (POD[family], 8080)
    return [
        *(Entry("TCP", (CLIENT[family], number), service, pod) for number in (1001, 1002)),
        *(Entry("UDP", (CLIENT[family], number), service, pod) for number in (1001, 1002, 1003)),
        Entry("UDP", (CLIENT[family], 1004), (SERVICE[family], 81), pod),
        Entry("TCP", (CLIENT[family], 1005), service, pod, zone=7),
    ]


@pytest.mark.parametrize("family", Family)
def test_entries_of_zone_0_are_counted(namespace: Namespace, family: Family) -> None:
    """Also those of TCP that are not established, which ``open_connections`` leaves out; those with no key are not."""
    del namespace
    for each in Family:
        add_entries(_entries(each))
    service, pod = packed_socket(SERVICE[family], 80), packed_socket(POD[family], 8080)
    found = count_connections(family, lambda each: each if each.destination == service else None)
    assert found == {Connection("TCP", service, pod): 2, Connection("UDP", service, pod): 3}
    assert {each.protocol for each in open_connections(family)} == {"UDP"}


def test_entries_of_an_interrupted_list_count_once(namespace: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel sends the list again."""
    del namespace
    add_entries(_entries(Family.IPV4))
    stream = netlink_dump.stream

    def stream_twice(*arguments: Any) -> None:
        stream(*arguments)
        stream(*arguments)

    monkeypatch.setattr(netlink_dump, "stream", stream_twice)
    assert count_connections(Family.IPV4, lambda each: each.protocol) == {"TCP": 2, "UDP": 4}
    assert len(open_connections(Family.IPV4)) == 4


def test_memory_does_not_depend_on_the_number_of_entries(namespace: Namespace) -> None:
    del namespace
    peaks = []
    for count in (1000, 20_000):
        add_many_entries(count, (SERVICE[Family.IPV4], 53), [(POD[Family.IPV4], 5353)])
        tracemalloc.start()
        (found,) = count_connections(Family.IPV4, lambda each: each.reply_source).values()
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert found == count
    assert peaks[1] < 2 * peaks[0]
