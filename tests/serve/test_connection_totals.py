"""Connections of Service ports, from readings of the kernel's counters."""

import socket

from knft.families import Family
from knft.model.names import ServicePortName
from knft.model.plan import Frontend, FrontendKind
from knft.serve.connection_totals import Connections, ConnectionTotals

V4, V6 = Family.IPV4, Family.IPV6
A, B, C = (ServicePortName("ns", name, "", "TCP") for name in "abc")
ONE, TWO = (Frontend(FrontendKind.CLUSTER_IP, f"10.96.0.{number}", "TCP", 80) for number in (1, 2))
NODEPORT = Frontend(FrontendKind.NODE_PORT, None, "UDP", 30000)


def _raw(number: int) -> bytes:
    return socket.inet_aton(f"10.96.0.{number}") + bytes([6, 0, 0, 0, 0, 80, 0, 0])


def _read(totals: ConnectionTotals, counts: dict[int, int], *, name: str = "service-connections") -> None:
    totals.add_readings({V4: {name: {_raw(number): count for number, count in counts.items()}}, V6: {}})


def _new(totals: ConnectionTotals) -> dict[ServicePortName, int]:
    return {name: found.new for name, found in totals.by_service_port().items()}


def test_first_reading_adopts_what_the_kernel_has_counted() -> None:
    totals = ConnectionTotals()
    totals.set_frontends(V4, {A: [ONE, NODEPORT]})
    assert totals.by_service_port() == {}
    nodeport = bytes([17, 0, 0, 0]) + (30000).to_bytes(2, "big") + b"\0\0"
    totals.add_readings(
        {
            V4: {
                "service-connections": {_raw(1): 5},
                "nodeport-connections": {nodeport: 2},
                "rejected-service-connections": {_raw(1): 1},
                "dropped-nodeport-connections": {nodeport: 2},
            }
        }
    )
    assert totals.by_service_port() == {A: Connections(7, rejected=1, dropped=2)}
    assert totals.by_frontend() == [
        (V4, A, ONE, Connections(5, rejected=1)),
        (V4, A, NODEPORT, Connections(2, dropped=2)),
    ]


def test_totals_grow_by_differences_and_never_fall() -> None:
    totals = ConnectionTotals()
    totals.set_frontends(V4, {A: [ONE]})
    seen = []
    for count in (5, 5, 8, 2, 3):  # The element was created again before the fourth reading.
        _read(totals, {1: count})
        seen.append(_new(totals)[A])
    assert seen == [5, 5, 8, 10, 11]
    _read(totals, {})  # The kernel omitted it from a dump.
    _read(totals, {1: 4})
    assert _new(totals) == {A: 12}


def test_removed_frontend_keeps_its_part_of_the_total() -> None:
    totals = ConnectionTotals()
    totals.set_frontends(V4, {A: [ONE, TWO]})
    _read(totals, {1: 5, 2: 7})
    totals.set_frontends(V4, {A: [ONE]})
    _read(totals, {1: 6})
    totals.set_frontends(V4, {A: [ONE, TWO]})
    _read(totals, {1: 6, 2: 9})  # A new element.
    assert _new(totals) == {A: 22}


def test_element_that_was_not_removed_is_not_counted_again() -> None:
    totals = ConnectionTotals()
    totals.set_frontends(V4, {A: [ONE, TWO]})
    _read(totals, {1: 5, 2: 7})
    totals.set_frontends(V4, {A: [ONE]})
    _read(totals, {1: 5, 2: 8})  # The kernel refused to remove it.
    totals.set_frontends(V4, {A: [ONE, TWO]})
    _read(totals, {1: 5, 2: 10})
    assert _new(totals) == {A: 14}


def test_frontend_that_was_removed_during_a_reading_counts_from_zero() -> None:
    totals = ConnectionTotals()
    totals.set_frontends(V4, {A: [ONE, TWO]})
    _read(totals, {1: 5, 2: 7})
    totals.set_frontends(V4, {A: [ONE]})
    _read(totals, {1: 5, 2: 7})  # Read before the sync.
    _read(totals, {1: 5})
    totals.set_frontends(V4, {A: [ONE, TWO]})
    _read(totals, {1: 5, 2: 9})
    assert _new(totals) == {A: 21}


def test_element_read_before_its_frontend_was_removed_is_ignored() -> None:
    totals = ConnectionTotals()
    totals.set_frontends(V4, {A: [ONE], B: [TWO]})
    _read(totals, {1: 100, 2: 5})
    totals.begin_reading()
    totals.set_frontends(V4, {A: []})
    _read(totals, {1: 100, 2: 6})  # Read before the sync.
    assert _new(totals) == {B: 6}
    totals.set_frontends(V4, {A: [ONE]})
    _read(totals, {1: 150, 2: 6})  # A new element.
    assert _new(totals) == {A: 150, B: 6}


def test_element_read_before_its_service_was_created_again_is_ignored() -> None:
    totals = ConnectionTotals()
    totals.set_frontends(V4, {A: [ONE]})
    _read(totals, {1: 1000})
    totals.begin_reading()
    totals.set_frontends(V4, {A: []})
    totals.set_frontends(V4, {A: [ONE]})
    _read(totals, {1: 1003})  # Read before both syncs.
    assert _new(totals) == {}
    _read(totals, {1: 3})
    assert _new(totals) == {A: 3}
    totals.set_frontends(V4, {A: []})
    totals.set_frontends(V4, {A: [ONE]})
    _read(totals, {1: 2})
    assert _new(totals) == {A: 2}


def test_frontend_that_passes_to_another_service_port_brings_no_connections() -> None:
    for changes in ({A: [], B: [ONE]}, {B: [ONE], A: []}):
        totals = ConnectionTotals()
        totals.set_frontends(V4, {A: [ONE]})
        _read(totals, {1: 5})
        totals.set_frontends(V4, changes)
        _read(totals, {1: 6})
        assert _new(totals) == {B: 1}
        assert [found.new for *_, found in totals.by_frontend()] == [1]


def test_elements_of_a_sync_that_has_not_ended_are_counted_later() -> None:
    totals = ConnectionTotals()
    _read(totals, {1: 5})
    totals.set_frontends(V4, {A: [ONE]})
    assert _new(totals) == {}
    _read(totals, {1: 6})
    assert _new(totals) == {A: 6}


def test_service_port_of_two_families_has_no_total_before_both_were_read() -> None:
    totals = ConnectionTotals()
    for family in Family:
        totals.set_frontends(family, {A: [NODEPORT]})
    totals.add_readings({V4: {}})
    assert _new(totals) == {}
    totals.add_readings({V4: {}, V6: {}})
    assert _new(totals) == {A: 0}


def test_number_of_service_ports_is_limited() -> None:
    totals = ConnectionTotals(limit=1)
    totals.set_frontends(V4, {A: [ONE], B: [TWO], C: [NODEPORT]})
    _read(totals, {1: 5, 2: 7})
    assert (_new(totals), totals.not_counted) == ({A: 5}, 2)
    totals.set_frontends(V4, {A: [], C: []})
    assert (_new(totals), totals.not_counted) == ({}, 0)
    _read(totals, {2: 8})
    assert _new(totals) == {B: 8}


def _released_count(totals: ConnectionTotals) -> int:
    return sum(map(len, totals._released.values()))


def test_released_frontends_are_limited_while_nothing_can_be_read() -> None:
    totals = ConnectionTotals(max_released=3)
    for number in range(5):
        frontend = Frontend(FrontendKind.CLUSTER_IP, f"10.96.1.{number}", "TCP", 80)
        totals.set_frontends(V4, {A: [ONE, frontend]})
    totals.set_frontends(V4, {A: []})
    assert _released_count(totals) == 3
    _read(totals, {1: 5})  # The kernel refused to remove it: the oldest were forgotten, not this one.
    totals.set_frontends(V4, {A: [ONE]})
    _read(totals, {1: 7})
    assert (_new(totals), _released_count(totals)) == ({A: 2}, 0)
