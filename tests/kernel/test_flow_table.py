"""FlowTable: lists the same flows as pyroute2 does, and deletes exactly the flows that it is given."""

import errno
import os
import socket
import struct
from collections.abc import Callable

import pytest

from knft.decide.stale_flows import packed_socket
from knft.errors import KernelError
from knft.kernel import conntrack
from knft.kernel import conntrack_messages as messages
from knft.kernel.conntrack import DELETE_BATCH, DUMP_ATTEMPTS, FlowTable, open_flow_table
from knft.kernel.conntrack_messages import Flow
from tests.support.conntrack_entries import (
    Entry,
    add_entries,
    add_many_entries,
    client_endpoints,
    delete_entry,
    listed_entries,
)
from tests.support.lab.namespace import Namespace
from tests.support.lab.plan import Version

pytestmark = pytest.mark.kernel
FAMILIES: dict[Version, int] = {4: int(socket.AF_INET), 6: int(socket.AF_INET6)}
VIRTUAL = {4: "10.96.0.10", 6: "fd00:10:96::10"}
POD = {4: "10.244.1.11", 6: "fd00:10:244:1::11"}
BOTH: tuple[Version, ...] = (4, 6)


def _entries(version: Version) -> list[Entry]:
    client = client_endpoints(version)
    virtual, pod = (VIRTUAL[version], 53), (POD[version], 5353)
    return [
        Entry("UDP", next(client), virtual, pod),
        Entry("UDP", next(client), virtual, virtual),
        Entry("UDP", next(client), (VIRTUAL[version], 3000), pod),
        Entry("TCP", next(client), virtual, pod),
        Entry("UDP", next(client), virtual, pod, zone=7),
    ]


def _match_all(original_destination: bytes, reply_source: bytes) -> bool:
    del original_destination, reply_source
    return True


@pytest.mark.parametrize("version", BOTH)
def test_dump_returns_udp_flows_of_zone_0(namespace: Namespace, version: Version) -> None:
    """No flows of other families, protocols or zones, and none that do not match."""
    del namespace
    for each in BOTH:
        add_entries(_entries(each))
    with open_flow_table(FAMILIES[version]) as table:
        listing = table.dump(_match_all)
        some = table.dump(lambda original_destination, _: original_destination == packed_socket(VIRTUAL[version], 3000))
    expected = [entry for entry in listed_entries(version) if entry.protocol == "UDP" and not entry.zone]
    assert sorted((flow.original_destination, flow.reply_source) for flow in listing.flows) == sorted(
        (packed_socket(*entry.original_destination), packed_socket(*entry.reply_source)) for entry in expected
    )
    assert len(expected) == 3
    assert [flow.original_destination for flow in some.flows] == [packed_socket(VIRTUAL[version], 3000)]
    assert listing.complete
    assert table.dumps == 2


@pytest.mark.parametrize("version", BOTH)
def test_kernel_passes_only_tcp_flows_to_the_endpoint(namespace: Namespace, version: Version) -> None:
    """In IPv6, also those to other endpoints with the same port: the kernel's comparison of addresses is wrong."""
    del namespace
    client, pod = client_endpoints(version), (POD[version], 5353)
    wanted = [Entry("TCP", next(client), (VIRTUAL[version], port), pod) for port in (53, 3000)]
    others = [
        Entry("TCP", next(client), (VIRTUAL[version], 53), (POD[version], 5354)),
        Entry("TCP", next(client), (VIRTUAL[version], 53), (f"{POD[version][:-1]}9", 5353)),
        Entry("TCP", pod, (VIRTUAL[version], 53), (VIRTUAL[version], 53)),
        Entry("TCP", next(client), pod, (VIRTUAL[version], 5353)),
        Entry("UDP", next(client), (VIRTUAL[version], 53), pod),
        Entry("TCP", next(client), (VIRTUAL[version], 53), pod, zone=7),
    ]
    add_entries([*wanted, *others])
    seen: list[bytes] = []

    def is_wanted(_: bytes, reply_source: bytes) -> bool:
        seen.append(reply_source)
        return reply_source == packed_socket(*pod)

    with open_flow_table(FAMILIES[version], "TCP") as table:
        flows = table.dump(is_wanted, packed_socket(*pod)).flows
        deleted = table.delete(flows)
    assert (deleted.count, deleted.error) == (2, "")
    assert listed_entries(version) == set(others)
    # Two, and the flow of another zone; in IPv6 also two to other addresses with the same port.
    assert len(seen) == (3 if version == 4 else 5)


@pytest.mark.parametrize("version", BOTH)
def test_delete_removes_only_the_given_flows(namespace: Namespace, version: Version) -> None:
    """Neither the flow with the same addresses in another zone, nor the TCP flow."""
    del namespace
    entries = _entries(version)
    add_entries(entries)
    with open_flow_table(FAMILIES[version]) as table:
        flows = table.dump(
            lambda original_destination, _: original_destination == packed_socket(VIRTUAL[version], 53)
        ).flows
        deleted = table.delete(flows)
    assert (deleted.count, deleted.error, table.deletions) == (2, "", 2)
    assert listed_entries(version) == set(entries[2:])


@pytest.mark.parametrize("version", BOTH)
def test_delete_ignores_expired_flows_and_keeps_recreated_ones(namespace: Namespace, version: Version) -> None:
    del namespace
    translated, untranslated, ended = _entries(version)[:3]
    add_entries([translated, untranslated, ended])
    renewed = [
        entry._replace(reply_source=(f"{entry.original_destination[0][:-1]}9", 5353))
        for entry in (translated, untranslated)
    ]
    with open_flow_table(FAMILIES[version]) as table:
        flows = table.dump(_match_all).flows
        for entry in (translated, untranslated, ended):
            delete_entry(entry)
        # The kernel derives CTA_ID from the memory address, which it often reuses.
        add_entries(renewed)
        deleted = table.delete(flows)
    assert (deleted.count, deleted.error, table.deletions) == (0, "", 3)
    assert listed_entries(version) == set(renewed)


class FaultySocket:
    """Wraps a netlink socket, modifies the buffers that it receives, and counts both directions."""

    def __init__(self, table: FlowTable, modify: Callable[[int, bytes], bytes] = lambda _, buffer: buffer) -> None:
        self._socket, self._modify = table._socket, modify
        self.sent = self.received = 0
        table._socket = self

    def sendto(self, data: bytes, address: tuple[int, int], /) -> int:
        self.sent += 1
        return self._socket.sendto(data, address)

    def recv(self, size: int, /) -> bytes:
        self.received += 1
        return self._modify(self.received, self._socket.recv(size))


def test_deletions_are_sent_in_batches_with_one_yield_each(
    namespace: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One yield for each acknowledgement would dominate the run time."""
    del namespace
    count, pauses = 10 * DELETE_BATCH + 1, list[None]()
    add_many_entries(count, ("10.96.0.10", 53), [("10.244.1.11", 5353)])
    with open_flow_table(FAMILIES[4]) as table:
        flows = table.dump(_match_all).flows
        seen = FaultySocket(table)
        monkeypatch.setattr(conntrack, "_yield_gil", lambda: pauses.append(None))
        assert table.delete(flows).count == len(flows) == table.deletions == count
    assert (seen.sent, len(pauses)) == (11, 11)
    assert seen.received == count
    assert listed_entries(4) == set()


def test_lost_acknowledgements_end_the_deletion_with_the_count_so_far(namespace: Namespace) -> None:
    """They are lost in the second batch of three; the third is not sent."""
    del namespace
    add_many_entries(2 * DELETE_BATCH + 1, ("10.96.0.10", 53), [("10.244.1.11", 5353)])

    def modify(number: int, buffer: bytes) -> bytes:
        if number == DELETE_BATCH + 4:
            raise OSError(errno.ENOBUFS, os.strerror(errno.ENOBUFS))
        return buffer

    with open_flow_table(FAMILIES[4]) as table:
        flows = table.dump(_match_all).flows
        FaultySocket(table, modify)
        deleted = table.delete(flows)
    assert (deleted.count, table.deletions) == (DELETE_BATCH + 3, 2 * DELETE_BATCH)
    assert "No buffer space available" in deleted.error
    assert len(listed_entries(4)) == 1


def _interrupted(buffer: bytes) -> bytes:
    """Return a buffer with NLM_F_DUMP_INTR on its first message."""
    flags = struct.unpack_from("=H", buffer, 6)[0] | messages.INTERRUPTED
    return buffer[:6] + struct.pack("=H", flags) + buffer[8:]


def test_interrupted_dump_is_repeated(namespace: Namespace) -> None:
    del namespace
    add_entries(_entries(4))
    with open_flow_table(FAMILIES[4]) as table:
        # Interrupts the first two dumps: a buffer of flows and a final one each.
        FaultySocket(table, lambda number, buffer: _interrupted(buffer) if number <= 4 else buffer)
        listing = table.dump(_match_all)
    assert (listing.complete, len(listing.flows), table.dumps) == (True, 3, 3)


def test_incomplete_dump_is_returned_after_all_attempts(namespace: Namespace) -> None:
    """If every attempt is interrupted."""
    del namespace
    add_entries(_entries(4))
    with open_flow_table(FAMILIES[4]) as table:
        FaultySocket(table, lambda _, buffer: _interrupted(buffer))
        listing = table.dump(_match_all)
    assert (listing.complete, len(listing.flows), table.dumps) == (False, 3, DUMP_ATTEMPTS)


def test_dump_is_repeated_after_buffer_overrun(namespace: Namespace) -> None:
    del namespace
    add_entries(_entries(4))

    def modify(number: int, buffer: bytes) -> bytes:
        if number == 1:
            raise OSError(errno.ENOBUFS, os.strerror(errno.ENOBUFS))
        return buffer

    with open_flow_table(FAMILIES[4]) as table:
        FaultySocket(table, modify)
        listing = table.dump(_match_all)
    assert (listing.complete, len(listing.flows), table.dumps) == (True, 3, 2)


def test_kernel_errors_are_reported(namespace: Namespace) -> None:
    """A refused dump raises KernelError; a refused deletion is returned with the number of deleted flows."""
    del namespace
    add_entries(_entries(4))
    with open_flow_table(FAMILIES[4]) as table:
        flows = table.dump(_match_all).flows
        nonsense = Flow(b"", b"", flows[0].reply_attribute[:-8], flows[0].id_attribute)
        deleted = table.delete([nonsense, *flows])
        assert deleted.count == 3
        assert deleted.error.startswith("cannot access UDP conntrack entries: Invalid argument; ")

        def denied(_: int, buffer: bytes) -> bytes:
            return buffer[:4] + struct.pack("=H", messages.ERROR) + buffer[6:16] + struct.pack("=i", -errno.EPERM)

        FaultySocket(table, denied)
        with pytest.raises(
            KernelError, match="UDP conntrack entries: Operation not permitted; the kernel module nf_conntrack_"
        ):
            table.dump(_match_all)


def test_dump_times_out(namespace: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    del namespace
    with open_flow_table(FAMILIES[4]) as table:
        table._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", 0, 10000))  # type: ignore[attr-defined]
        monkeypatch.setattr(table, "_send", lambda _: None)
        with pytest.raises(KernelError, match="UDP conntrack entries: Connection timed out;"):
            table.dump(_match_all)
