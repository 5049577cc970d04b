"""Numbers of sticky ports and indexes of their endpoints."""

import pytest

from knft.model.names import ServicePortName
from knft.nft.expressions import Drop
from knft.nft.objects import Contents, Entry, Target
from knft.render.names import STICKY_PORTS
from knft.render.numbering import (
    MAX_LEFT_INDEXES,
    NUMBERS,
    Numbering,
    Slot,
    StickyPort,
    assign,
    free_number,
    identity,
    merge_remembered,
    retire,
)
from knft.render.sticky import read_sticky_ports, sticky_port_record

WEB = ServicePortName("default", "web", "http", "TCP")
NEW = StickyPort("WEB", "default/web:http", 7)
TIMEOUT = 60


def _targets(*numbers: int) -> list[Target]:
    return [(f"10.244.0.{number}", 8080) for number in numbers]


A, B, C = _targets(1, 2, 3)


def test_an_endpoint_keeps_its_index_and_a_newcomer_waits_for_the_one_that_was_left() -> None:
    first = assign(NEW, [A, B], TIMEOUT, 100)
    second = assign(first, [B, C], TIMEOUT, 110)
    assert second.indexes() == {B: 1, C: 2}
    assert second.free_at() == 170
    third = assign(second, [B, C, A], TIMEOUT, 170)
    assert third.indexes() == {A: 0, B: 1, C: 2}


def test_one_that_returns_before_that_starts_afresh() -> None:
    left = assign(assign(NEW, [A, B], TIMEOUT, 100), [B], TIMEOUT, 101)
    assert assign(left, [A, B], TIMEOUT, 102).indexes() == {A: 2, B: 1}


def test_a_shortened_timeout_does_not_shorten_memories() -> None:
    before = assign(NEW, [A, B], 3600, 0)
    left = assign(before, [B], 10, 100)
    assert left.free_at() == 3700


def test_free_indexes_at_the_end_are_given_up() -> None:
    left = assign(assign(NEW, [A, B, C], TIMEOUT, 0), [A], TIMEOUT, 0)
    assert len(assign(left, [A], TIMEOUT, TIMEOUT - 1).slots) == 3
    assert len(assign(left, [A], TIMEOUT, TIMEOUT).slots) == 1


def test_one_that_flaps_gets_back_its_oldest_index() -> None:
    port = assign(NEW, [A], TIMEOUT, 0)
    for second in range(MAX_LEFT_INDEXES - 1):
        port = assign(assign(port, [], TIMEOUT, second), [A], TIMEOUT, second)
    assert port.indexes() == {A: MAX_LEFT_INDEXES - 1}
    port = assign(assign(port, [B], TIMEOUT, 50), [A, B], TIMEOUT, 50)
    assert port.indexes() == {A: 0, B: MAX_LEFT_INDEXES}


def test_one_that_flaps_takes_no_index_that_another_has_just_been_given() -> None:
    live, *newcomers = _targets(*range(10, 10 + MAX_LEFT_INDEXES + 1))
    slots = (*(Slot(A, 10.0) for _ in range(MAX_LEFT_INDEXES)), Slot(live))
    assigned = assign(StickyPort("WEB", "", 7, slots, 10), [live, *newcomers, A], 10, 100)
    assert set(assigned.indexes()) == {live, *newcomers, A}


def test_a_retired_port_is_forgotten_with_its_last_client() -> None:
    retired = retire(assign(NEW, [A], TIMEOUT, 0), 10)
    assert retired is not None
    assert retired.indexes() == {}
    assert retire(retired, 10 + TIMEOUT - 1) == retired
    assert retire(retired, 10 + TIMEOUT) is None


def test_the_number_is_the_same_for_the_same_name_unless_another_has_it() -> None:
    number = free_number("WEB", ())
    assert number is not None
    assert free_number("WEB", ()) == number
    assert free_number("WEB", {number}) == (number + 1) % NUMBERS
    assert free_number("WEB", range(NUMBERS)) is None


def test_where_every_number_is_taken_a_port_goes_without() -> None:
    known = {str(number): StickyPort(str(number), "", number) for number in range(NUMBERS)}
    numbering = Numbering(known, 0)
    assert numbering.assign(WEB, [A], TIMEOUT) is None
    assert numbering.without_number == [WEB]


def test_where_every_index_is_taken_the_oldest_memories_give_way() -> None:
    slots = [Slot(None, 100.0 + index) for index in range(NUMBERS)]
    slots[9] = Slot(None, 99.0)
    full = StickyPort("WEB", "", 7, tuple(slots), TIMEOUT)
    assert assign(full, [A], TIMEOUT, 50).indexes() == {A: 9}


def test_numbers_are_read_back_as_they_were_written() -> None:
    port = assign(assign(NEW, [A, B, C], TIMEOUT, 100.5), [A, C], TIMEOUT, 100.5)
    read = read_sticky_ports(sticky_port_record(port, {}), 100.5)
    assert read == {"WEB": StickyPort("WEB", "default/web:http", 7, (Slot(A), Slot(None, 161), Slot(C)), TIMEOUT)}
    assert sticky_port_record(read["WEB"], {}) == sticky_port_record(port, {})


@pytest.mark.parametrize(
    "comment",
    ["", "WEB", "WEB 2 60 0 abc", "WEB 2 sixty 0 abc default/web", "WEB 123456789 60 0 abc default/web"],
)
def test_a_note_that_is_none_is_passed_over(comment: str) -> None:
    contents = Contents.empty()
    contents.entries[STICKY_PORTS, (7,)] = Entry(Drop(), comment)
    assert read_sticky_ports(contents, 0) == {}


def test_a_time_beyond_the_timeout_is_not_believed() -> None:
    contents = Contents.empty()
    contents.entries[STICKY_PORTS, (7,)] = Entry(Drop(), "WEB 1 60 99999999 abc default/web")
    assert read_sticky_ports(contents, 100)["WEB"].free_at() == 160


def test_what_a_process_remembers_counts_where_the_kernel_has_the_same() -> None:
    """The kernel keeps one time for all indexes."""
    port = assign(assign(NEW, [A, B, C], TIMEOUT, 0), [B, C], TIMEOUT, 0)
    port = assign(port, [C], TIMEOUT, 30)
    found = read_sticky_ports(sticky_port_record(port, {}), 31)
    assert [slot.free_at for slot in found["WEB"].slots] == [90, 90, None]
    assert merge_remembered(found, {"WEB": port}) == {"WEB": port}
    older = assign(port, [B, C], TIMEOUT, 20)
    assert merge_remembered(found, {"WEB": older}) == found
    assert merge_remembered(found, {}) == found


def test_tidying_forgets_retired_ports_alone() -> None:
    """One that is sticky keeps its number, also while it has no endpoints."""
    retired = retire(assign(NEW, [A], TIMEOUT, 0), 10)
    assert retired is not None
    known = {"empty": NEW, "retired": retired}
    for now, forgotten in ((10 + TIMEOUT - 1, {}), (10 + TIMEOUT, {"retired": None})):
        numbering = Numbering(known, now)
        numbering.remove_expired()
        assert forgotten == numbering.changed


def test_only_what_is_sticky_no_longer_is_retired() -> None:
    known = {identity(WEB): assign(NEW, [A], TIMEOUT, 0), "OTHER": assign(NEW, [B], TIMEOUT, 0)}
    numbering = Numbering(known, 10)
    numbering.assign(WEB, [A], TIMEOUT)
    numbering.retire_unassigned()
    kept, other = numbering.changed[identity(WEB)], numbering.changed["OTHER"]
    assert kept is not None
    assert other is not None
    assert (kept.free_at(), other.free_at()) == (0, 70)
