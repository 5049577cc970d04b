"""FlowTable: what the kernel has is read as pyroute2 reads it, and exactly what is asked for is deleted."""

import errno
import os
import socket
import struct
from collections.abc import Callable

import pytest

from knft.decide.stale_flows import end
from knft.errors import KernelError
from knft.kernel import conntrack
from knft.kernel import flow_messages as messages
from knft.kernel.conntrack import AT_ONCE, ATTEMPTS, FlowTable, flow_table
from knft.kernel.flow_messages import Flow
from tests.conntrack.entries import Entry, clients, delete, make, make_many, present
from tests.support.lab.namespace import Namespace
from tests.support.lab.plan import Version

pytestmark = pytest.mark.kernel
FAMILIES: dict[Version, int] = {4: int(socket.AF_INET), 6: int(socket.AF_INET6)}
VIRTUAL = {4: "10.96.0.10", 6: "fd00:10:96::10"}
POD = {4: "10.244.1.11", 6: "fd00:10:244:1::11"}
BOTH: tuple[Version, ...] = (4, 6)


def _entries(version: Version) -> list[Entry]:
    client = clients(version)
    virtual, pod = (VIRTUAL[version], 53), (POD[version], 5353)
    return [
        Entry("UDP", next(client), virtual, pod),
        Entry("UDP", next(client), virtual, virtual),
        Entry("UDP", next(client), (VIRTUAL[version], 3000), pod),
        Entry("TCP", next(client), virtual, pod),
        Entry("UDP", next(client), virtual, pod, zone=7),
    ]


def _everything(dialled: bytes, answering: bytes) -> bool:
    del dialled, answering
    return True


@pytest.mark.parametrize("version", BOTH)
def test_flows_of_udp_in_zone_0_are_read(namespace: Namespace, version: Version) -> None:
    """And no other family's, protocol's or zone's; those that are not wanted are left out."""
    del namespace
    for each in BOTH:
        make(_entries(each))
    with flow_table(FAMILIES[version]) as table:
        listing = table.find(_everything)
        some = table.find(lambda dialled, _: dialled == end(VIRTUAL[version], 3000))
    expected = [entry for entry in present(version) if entry.protocol == "UDP" and not entry.zone]
    assert sorted((flow.dialled, flow.answering) for flow in listing.flows) == sorted(
        (end(*entry.dialled), end(*entry.answering)) for entry in expected
    )
    assert len(expected) == 3
    assert [flow.dialled for flow in some.flows] == [end(VIRTUAL[version], 3000)]
    assert listing.complete
    assert table.listings == 2


@pytest.mark.parametrize("version", BOTH)
def test_exactly_the_flows_that_are_named_are_forgotten(namespace: Namespace, version: Version) -> None:
    """Not the one with the same ends in another zone, nor TCP's."""
    del namespace
    entries = _entries(version)
    make(entries)
    with flow_table(FAMILIES[version]) as table:
        flows = table.find(lambda dialled, _: dialled == end(VIRTUAL[version], 53)).flows
        forgotten = table.forget(flows)
    assert (forgotten.count, forgotten.refusal, table.deletions) == (2, "", 2)
    assert present(version) == set(entries[2:])


@pytest.mark.parametrize("version", BOTH)
def test_a_flow_that_has_ended_meanwhile_is_no_failure_and_one_that_leads_elsewhere_now_stays(
    namespace: Namespace, version: Version
) -> None:
    del namespace
    translated, untranslated, ended = _entries(version)[:3]
    make([translated, untranslated, ended])
    renewed = [entry._replace(answering=(f"{entry.dialled[0][:-1]}9", 5353)) for entry in (translated, untranslated)]
    with flow_table(FAMILIES[version]) as table:
        flows = table.find(_everything).flows
        for entry in (translated, untranslated, ended):
            delete(entry)
        # The kernel likes to give them the same places in memory, of which it makes their identities.
        make(renewed)
        forgotten = table.forget(flows)
    assert (forgotten.count, forgotten.refusal, table.deletions) == (0, "", 3)
    assert present(version) == set(renewed)


class Troubled:
    """A socket of the kernel's, whose buffers are spoilt on the way; how many go either way is counted."""

    def __init__(self, table: FlowTable, spoil: Callable[[int, bytes], bytes] = lambda _, buffer: buffer) -> None:
        self._socket, self._spoil = table._socket, spoil
        self.sent = self.received = 0
        table._socket = self

    def sendto(self, data: bytes, address: tuple[int, int], /) -> int:
        self.sent += 1
        return self._socket.sendto(data, address)

    def recv(self, size: int, /) -> bytes:
        self.received += 1
        return self._spoil(self.received, self._socket.recv(size))


def test_many_are_forgotten_in_few_sendings_with_a_pause_for_each(
    namespace: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not one for each answer, which would be all the time that it takes."""
    del namespace
    count, pauses = 10 * AT_ONCE + 1, list[None]()
    make_many(count, ("10.96.0.10", 53), [("10.244.1.11", 5353)])
    with flow_table(FAMILIES[4]) as table:
        flows = table.find(_everything).flows
        seen = Troubled(table)
        monkeypatch.setattr(conntrack, "_give_way", lambda: pauses.append(None))
        assert table.forget(flows).count == len(flows) == table.deletions == count
    assert (seen.sent, len(pauses)) == (11, 11)
    assert seen.received == count
    assert present(4) == set()


def test_what_was_answered_before_answers_got_lost_counts(namespace: Namespace) -> None:
    """In the second sending of three; those of the third are not asked for."""
    del namespace
    make_many(2 * AT_ONCE + 1, ("10.96.0.10", 53), [("10.244.1.11", 5353)])

    def spoil(number: int, buffer: bytes) -> bytes:
        if number == AT_ONCE + 4:
            raise OSError(errno.ENOBUFS, os.strerror(errno.ENOBUFS))
        return buffer

    with flow_table(FAMILIES[4]) as table:
        flows = table.find(_everything).flows
        Troubled(table, spoil)
        forgotten = table.forget(flows)
    assert (forgotten.count, table.deletions) == (AT_ONCE + 3, 2 * AT_ONCE)
    assert "No buffer space available" in forgotten.refusal
    assert len(present(4)) == 1


def _interrupted(buffer: bytes) -> bytes:
    """Return a buffer with NLM_F_DUMP_INTR on its first message."""
    flags = struct.unpack_from("=H", buffer, 6)[0] | messages.INTERRUPTED
    return buffer[:6] + struct.pack("=H", flags) + buffer[8:]


def test_an_interrupted_listing_is_begun_again(namespace: Namespace) -> None:
    del namespace
    make(_entries(4))
    with flow_table(FAMILIES[4]) as table:
        # The first two answers, each a buffer of flows and one that ends it, are spoilt.
        Troubled(table, lambda number, buffer: _interrupted(buffer) if number <= 4 else buffer)
        listing = table.find(_everything)
    assert (listing.complete, len(listing.flows), table.listings) == (True, 3, 3)


def test_what_was_listed_will_do_in_the_end(namespace: Namespace) -> None:
    """Where every attempt is interrupted."""
    del namespace
    make(_entries(4))
    with flow_table(FAMILIES[4]) as table:
        Troubled(table, lambda _, buffer: _interrupted(buffer))
        listing = table.find(_everything)
    assert (listing.complete, len(listing.flows), table.listings) == (False, 3, ATTEMPTS)


def test_where_there_was_no_room_for_an_answer_it_is_asked_again(namespace: Namespace) -> None:
    del namespace
    make(_entries(4))

    def spoil(number: int, buffer: bytes) -> bytes:
        if number == 1:
            raise OSError(errno.ENOBUFS, os.strerror(errno.ENOBUFS))
        return buffer

    with flow_table(FAMILIES[4]) as table:
        Troubled(table, spoil)
        listing = table.find(_everything)
    assert (listing.complete, len(listing.flows), table.listings) == (True, 3, 2)


def test_a_refusal_is_said(namespace: Namespace) -> None:
    """Of a listing it is raised; of a deletion it is handed back, with the number of those that are gone."""
    del namespace
    make(_entries(4))
    with flow_table(FAMILIES[4]) as table:
        flows = table.find(_everything).flows
        nonsense = Flow(b"", b"", flows[0].answered[:-8], flows[0].number)
        forgotten = table.forget([nonsense, *flows])
        assert forgotten.count == 3
        assert forgotten.refusal.startswith("conntrack cannot be asked about UDP flows: Invalid argument; ")

        def denied(_: int, buffer: bytes) -> bytes:
            return buffer[:4] + struct.pack("=H", messages.ERROR) + buffer[6:16] + struct.pack("=i", -errno.EPERM)

        Troubled(table, denied)
        with pytest.raises(KernelError, match="UDP flows: Operation not permitted; it takes the module nf_conntrack_"):
            table.find(_everything)


def test_a_kernel_that_does_not_answer_is_not_waited_for(namespace: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    del namespace
    with flow_table(FAMILIES[4]) as table:
        table._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", 0, 10000))  # type: ignore[attr-defined]
        monkeypatch.setattr(table, "_send", lambda _: None)
        with pytest.raises(KernelError, match="UDP flows: Connection timed out;"):
            table.find(_everything)
