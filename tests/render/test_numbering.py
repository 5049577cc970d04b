"""Numbers of sticky ports and indexes of their endpoints."""

import pytest

from knft.model.names import ServicePortName
from knft.nft.expressions import Drop
from knft.nft.objects import Contents, Entry, Key, Target
from knft.render import numbering
from knft.render.names import STICKY_PORTS
from knft.render.numbering import (
    MAX_RESERVED_INDEXES,
    MAX_RESERVED_INDEXES_PER_ENDPOINT,
    MAX_RESERVED_SHARE,
    MAX_RETIRED_PORTS,
    NUMBERS,
    Numbering,
    Slot,
    StickyPort,
    adopt_equal_targets,
    assign,
    free_number,
    prefer_in_memory,
    retire,
    sticky_hash_id,
)
from knft.render.sticky import read_sticky_ports, sticky_port_record

WEB = ServicePortName("default", "web", "http", "TCP")
NEW = StickyPort("WEB", "default/web:http", 7)
TIMEOUT = 60


def _targets(*numbers: int) -> list[Target]:
    return [(f"10.244.0.{number}", 8080) for number in numbers]


A, B, C = _targets(1, 2, 3)


def test_endpoint_keeps_its_index_and_freed_index_stays_reserved() -> None:
    first = assign(NEW, [A, B], TIMEOUT, 100)
    second = assign(first, [B, C], TIMEOUT, 110)
    assert second.indexes() == {B: 1, C: 2}
    assert second.free_at() == 170
    third = assign(second, [B, C, A], TIMEOUT, 170)
    assert third.indexes() == {A: 0, B: 1, C: 2}


def test_returning_endpoint_gets_a_new_index() -> None:
    left = assign(assign(NEW, [A, B], TIMEOUT, 100), [B], TIMEOUT, 101)
    assert assign(left, [A, B], TIMEOUT, 102).indexes() == {A: 2, B: 1}


def test_shorter_timeout_does_not_shorten_reservations() -> None:
    before = assign(NEW, [A, B], 3600, 0)
    left = assign(before, [B], 10, 100)
    assert left.free_at() == 3700


def test_free_indexes_at_the_end_are_removed() -> None:
    left = assign(assign(NEW, [A, B, C], TIMEOUT, 0), [A], TIMEOUT, 0)
    assert len(assign(left, [A], TIMEOUT, TIMEOUT - 1).slots) == 3
    assert len(assign(left, [A], TIMEOUT, TIMEOUT).slots) == 1


def test_flapping_endpoint_gets_its_oldest_index_back() -> None:
    port = assign(NEW, [A], TIMEOUT, 0)
    for second in range(MAX_RESERVED_INDEXES_PER_ENDPOINT - 1):
        port = assign(assign(port, [], TIMEOUT, second), [A], TIMEOUT, second)
    assert port.indexes() == {A: MAX_RESERVED_INDEXES_PER_ENDPOINT - 1}
    port = assign(assign(port, [B], TIMEOUT, 50), [A, B], TIMEOUT, 50)
    assert port.indexes() == {A: 0, B: MAX_RESERVED_INDEXES_PER_ENDPOINT}


def test_flapping_endpoint_takes_no_index_of_another_endpoint() -> None:
    live, *newcomers = _targets(*range(10, 10 + MAX_RESERVED_INDEXES_PER_ENDPOINT + 1))
    slots = (*(Slot(A, 10.0) for _ in range(MAX_RESERVED_INDEXES_PER_ENDPOINT)), Slot(live))
    assigned = assign(StickyPort("WEB", "", 7, slots, 10), [live, *newcomers, A], 10, 100)
    assert set(assigned.indexes()) == {live, *newcomers, A}


def test_retired_port_is_removed_with_its_last_client() -> None:
    retired = retire(assign(NEW, [A], TIMEOUT, 0), 10)
    assert retired is not None
    assert retired.indexes() == {}
    assert retire(retired, 10 + TIMEOUT - 1) == retired
    assert retire(retired, 10 + TIMEOUT) is None


def test_number_depends_on_the_name_unless_it_is_taken() -> None:
    number = free_number("WEB", ())
    assert number is not None
    assert free_number("WEB", ()) == number
    assert free_number("WEB", {number}) == (number + 1) % NUMBERS
    assert free_number("WEB", range(NUMBERS)) is None


def test_port_gets_no_number_if_all_are_taken() -> None:
    known = {str(number): StickyPort(str(number), "", number) for number in range(NUMBERS)}
    numbering = Numbering(known, 0)
    assert numbering.assign(WEB, [A], TIMEOUT) is None
    assert numbering.without_number == [WEB]


def test_oldest_reserved_index_is_reused_if_all_are_taken() -> None:
    live = [(f"10.1.{number >> 8}.{number & 255}", 80) for number in range(NUMBERS // 2)]
    slots = [*map(Slot, live), *(Slot(None, 100.0 + index) for index in range(NUMBERS - len(live)))]
    slots[-9] = Slot(None, 99.0)
    full = StickyPort("WEB", "", 7, tuple(slots), TIMEOUT)
    assert assign(full, [*live, A], TIMEOUT, 50).indexes()[A] == NUMBERS - 9


def test_replaced_endpoints_reserve_a_limited_number_of_indexes() -> None:
    """The clients of the first ones may be sent to others before their affinity has expired."""
    port = NEW
    for second in range(3 * MAX_RESERVED_INDEXES):
        port = assign(port, [A, (f"10.1.0.{second}", 80)], TIMEOUT, second / 1000)
    assert len(port.slots) <= MAX_RESERVED_INDEXES + 2
    assert port.indexes()[A] == 0
    reserved = [slot for slot in port.slots if slot.free_at is not None]
    assert {slot.target for slot in reserved if slot.target} >= {
        (f"10.1.0.{3 * MAX_RESERVED_INDEXES - 2 - number}", 80) for number in range(MAX_RESERVED_INDEXES - 1)
    }


def test_large_port_reserves_the_indexes_of_two_rollouts() -> None:
    generations = [[(f"10.{generation}.0.{number}", 80) for number in range(400)] for generation in range(5)]
    port = NEW
    for generation in generations:
        port = assign(port, generation, TIMEOUT, 0)
    assert len(port.slots) == (1 + MAX_RESERVED_SHARE) * 400


def test_number_of_retired_ports_is_limited() -> None:
    """Those that are free first are removed, and never a port that is in use."""
    known = {}
    for number in range(MAX_RETIRED_PORTS):
        retired = retire(assign(StickyPort(f"P{number}", "", number), [A], TIMEOUT, number), number)
        assert retired is not None
        known[retired.hash_id] = retired
    live = assign(StickyPort(sticky_hash_id(WEB), str(WEB), NUMBERS - 1), [A], TIMEOUT, 0)
    numbering = Numbering({**known, live.hash_id: live}, MAX_RETIRED_PORTS)
    numbering.limit_retired()
    assert numbering.changed == {}
    numbering.changed["P0"] = known["P0"]
    numbering.limit_retired()
    assert numbering.changed == {"P0": known["P0"]}, "as many as allowed stay"

    numbering.retire(WEB)
    numbering.limit_retired()

    removed = [hash_id for hash_id, port in numbering.changed.items() if port is None]
    assert removed == [f"P{number}" for number in range(len(removed))]
    assert MAX_RETIRED_PORTS // 5 < len(removed) < MAX_RETIRED_PORTS // 3
    assert numbering.changed[live.hash_id] is not None


def test_records_are_decoded_as_written() -> None:
    port = assign(assign(NEW, [A, B, C], TIMEOUT, 100.5), [A, C], TIMEOUT, 100.5)
    read = read_sticky_ports(sticky_port_record(port, {}), 100.5)
    assert read == {"WEB": StickyPort("WEB", "default/web:http", 7, (Slot(A), Slot(None, 161), Slot(C)), TIMEOUT)}
    assert sticky_port_record(read["WEB"], {}) == sticky_port_record(port, {})


@pytest.mark.parametrize(
    "comment",
    ["", "WEB", "WEB 2 60 0 abc", "WEB 2 sixty 0 abc default/web", "WEB 123456789 60 0 abc default/web"],
)
def test_malformed_record_is_ignored(comment: str) -> None:
    contents = Contents.empty()
    contents.entries[STICKY_PORTS, (7,)] = Entry(Drop(), comment)
    assert read_sticky_ports(contents, 0) == {}


def test_records_are_read_beside_other_elements() -> None:
    """Only those of the map: a Service's name may be any text."""
    contents = sticky_port_record(assign(NEW, [A], TIMEOUT, 0), {})
    (record,) = contents.entries.values()
    others: dict[tuple[str, Key], Entry] = {
        ("service-ips", (7,)): record,
        (STICKY_PORTS, (8,)): Entry(Drop(), "foreign"),
    }
    contents.entries = {**others, **contents.entries}
    assert read_sticky_ports(contents, 0) == {"WEB": assign(NEW, [A], TIMEOUT, 0)}
    assert read_sticky_ports(Contents(others, {}, set()), 0) == {}


def test_impossible_reservation_time_is_limited_to_the_timeout() -> None:
    contents = Contents.empty()
    contents.entries[STICKY_PORTS, (7,)] = Entry(Drop(), "WEB 1 60 99999999 abc default/web")
    assert read_sticky_ports(contents, 100)["WEB"].free_at() == 160


def test_remembered_port_is_preferred_if_the_kernel_has_the_same() -> None:
    """The kernel stores one time for all indexes."""
    port = assign(assign(NEW, [A, B, C], TIMEOUT, 0), [B, C], TIMEOUT, 0)
    port = assign(port, [C], TIMEOUT, 30)
    found = read_sticky_ports(sticky_port_record(port, {}), 31)
    assert [slot.free_at for slot in found["WEB"].slots] == [90, 90, None]
    assert prefer_in_memory(found, {"WEB": port}) == {"WEB": port}
    older = assign(port, [B, C], TIMEOUT, 20)
    assert prefer_in_memory(found, {"WEB": older}) == found
    assert prefer_in_memory(found, {}) == found


def test_remove_expired_removes_retired_ports_only() -> None:
    """A port that is still sticky keeps its number, even without endpoints."""
    retired = retire(assign(NEW, [A], TIMEOUT, 0), 10)
    assert retired is not None
    known = {"empty": NEW, "retired": retired}
    for now, forgotten in ((10 + TIMEOUT - 1, {}), (10 + TIMEOUT, {"retired": None})):
        numbering = Numbering(known, now)
        numbering.remove_expired()
        assert forgotten == numbering.changed


def test_only_ports_without_affinity_are_retired() -> None:
    known = {sticky_hash_id(WEB): assign(NEW, [A], TIMEOUT, 0), "OTHER": assign(NEW, [B], TIMEOUT, 0)}
    numbering = Numbering(known, 10)
    numbering.assign(WEB, [A], TIMEOUT)
    numbering.retire_unassigned()
    kept, other = numbering.changed[sticky_hash_id(WEB)], numbering.changed["OTHER"]
    assert kept is not None
    assert other is not None
    assert (kept.free_at(), other.free_at()) == (0, 70)


def test_records_of_another_process_are_adopted_if_they_have_the_same_endpoints() -> None:
    """Otherwise the record in memory is better: it belongs to the objects that this process knows."""
    in_memory, swapped = assign(NEW, [A, B], TIMEOUT, 0), assign(NEW, [B, A], TIMEOUT, 0)
    other = StickyPort("OTHER", "default/other:http", 8)
    memory = {"WEB": in_memory, "OTHER": other}
    assert adopt_equal_targets({"WEB": swapped}, memory) == {"WEB": swapped, "OTHER": other}
    assert adopt_equal_targets({"WEB": assign(NEW, [A], TIMEOUT, 0), "FOREIGN": swapped}, memory) == memory
    assert adopt_equal_targets({}, memory) == memory


def test_name_and_number_in_the_kernel_are_those_of_every_version() -> None:
    """Another value would end the affinity of all clients when knft is updated."""
    assert sticky_hash_id(WEB) == "SUSTUHLJ5NERIIXD"
    assigned = Numbering({}, 0).assign(WEB, [A], TIMEOUT)
    assert assigned is not None
    assert assigned.number == 6874


def test_new_ports_with_the_same_first_number_get_different_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbering, "NUMBERS", 3)
    names = [WEB._replace(name=f"web-{number}") for number in range(4)]
    assigning = Numbering({}, 0)
    assigned = [assigning.assign(name, [A], TIMEOUT) for name in names]
    assert sorted(port.number for port in assigned if port is not None) == [0, 1, 2]
    assert assigning.without_number == names[3:]
