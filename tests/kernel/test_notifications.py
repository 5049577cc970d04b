"""ForeignChangeMonitor: reports other programs' changes to knft's table, and nothing else, on a real kernel.

The kernel queues notifications before the commit returns, so a missing one does not arrive later.
"""

import os
import re
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

import pytest

from knft.families import Family
from knft.kernel import nftables_messages, notifications, process_names
from knft.kernel.notifications import ForeignChange, ForeignChangeMonitor
from tests.support.lab import links
from tests.support.lab.namespace import Namespace
from tests.support.nft_process import library_and_ports
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kernel

TIMEOUT = 30.0
"""Seconds after which a test is considered hung."""
# In other user namespaces libnftables may not enlarge its send buffer, so a transaction must fit into the default.
LARGE_TRANSACTION_ELEMENTS = 50_000 if Path("/proc/self/uid_map").read_text().split()[2] == str(2**32 - 1) else 1000
"""The number of elements of a large transaction, in the initial user namespace and in others."""
ADDRESSES = {"ip": ("ipv4_addr", "10.0.0.1", "10.0.0.2"), "ip6": ("ipv6_addr", "fd00::1", "fd00::2")}


def _table(family: str, name: str = "knft") -> str:
    kind, first, _ = ADDRESSES.get(family, ADDRESSES["ip"])
    return f"""
        table {family} {name} {{
            set members {{ type {kind}
                elements = {{ {first} }}
            }}
            map verdicts {{ type {kind} : verdict
            }}
            chain services {{
                accept
            }}
            chain other {{
                counter
            }}
        }}
    """


def _many(count: int, table: str = "ip knft") -> str:
    addresses = ",".join(f"10.{i >> 16}.{i >> 8 & 255}.{i & 255}" for i in range(256, 256 + count))
    return f"add element {table} members {{ {addresses} }}"


class Node:
    """Tables of both families made by knft's libnftables, a monitor of them, and another program's nft."""

    def __init__(self, namespace: Namespace) -> None:
        self.namespace = namespace
        self.libnftables, ports = library_and_ports()
        self.libnftables.run(_table("ip") + _table("ip6"))
        self.changes = ForeignChangeMonitor("knft", ports)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.changes.close()
        self.libnftables.close()

    def nft(self, commands: str) -> None:
        self.namespace.run(["nft", "-f", "-"], stdin=commands)

    def next_changes(self) -> tuple[ForeignChange, ...]:
        """Return the queued changes of one transaction."""
        return self.changes.receive(0)

    def queued_kinds(self) -> list[list[int]]:
        """Return the kinds of the messages in each queued buffer, which has passed the kernel's filter."""
        buffers = []
        with suppress(BlockingIOError):
            while True:
                buffers.append(
                    [message.kind for message in nftables_messages.split(self.changes._socket.recv(1 << 16))]
                )
        return buffers


@pytest.fixture
def node(namespace: Namespace) -> Iterator[Node]:
    with Node(namespace) as made:
        yield made


@contextmanager
def _receiving_thread(changes: ForeignChangeMonitor) -> Iterator[list[ForeignChange]]:
    """Receive changes in a thread, and check that it ends after ``stop``."""
    received: list[ForeignChange] = []

    def follow() -> None:
        while found := changes.receive(TIMEOUT):
            received.extend(found)

    thread = threading.Thread(target=follow)
    thread.start()
    start = time.monotonic()
    yield received
    changes.stop()
    thread.join()
    assert time.monotonic() - start < TIMEOUT


@pytest.mark.parametrize("family", Family)
@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("add element {table} members {{ {second} }}", {"sets": ["members"]}),
        ("delete element {table} members {{ {first} }}", {"sets": ["members"]}),
        ("add element {table} verdicts {{ {first} : goto other }}", {"sets": ["verdicts"]}),
        ("flush set {table} members", {"sets": ["members"]}),
        ("delete set {table} members", {"sets": ["members"]}),
        ("add rule {table} services drop", {"chains": ["services"]}),
        ("flush chain {table} services", {"chains": ["services"]}),
        ("delete chain {table} other", {"chains": ["other"]}),
        ("add chain {table} third", {"chains": ["third"]}),
        ("flush table {table}", {"chains": ["other", "services"]}),
        ("add counter {table} foreign", {}),
        ("add table {table} {{ flags dormant; }}", {}),
        ("delete table {table}", {"chains": ["other", "services"], "sets": ["members", "verdicts"], "gone": True}),
        (
            "delete table {table}; add table {table}",
            {"chains": ["other", "services"], "sets": ["members", "verdicts"]},
        ),
    ],
)
def test_foreign_change_is_reported(node: Node, family: Family, command: str, expected: dict[str, list[str]]) -> None:
    _, first, second = ADDRESSES[family.nft]
    node.nft(command.format(table=f"{family.nft} knft", first=first, second=second))

    (change,) = node.changes.receive(TIMEOUT)

    assert (change.family, change.table_gone, change.overrun) == (family, bool(expected.get("gone")), False)
    assert sorted(change.chains) == expected.get("chains", [])
    assert sorted(change.sets) == expected.get("sets", [])
    assert change.process.startswith("nft (pid ")
    assert node.next_changes() == ()


def test_flushed_ruleset_is_reported_for_both_families(node: Node) -> None:
    node.nft(_table("ip", "foreign"))
    node.nft("flush ruleset")
    changes = node.changes.receive(TIMEOUT)
    assert {change.family for change in changes if change.table_gone} == set(Family)
    assert len(changes) == 2
    assert node.next_changes() == ()


def test_transactions_are_reported_separately(node: Node) -> None:
    node.nft("flush chain ip knft services")
    node.nft("flush chain ip6 knft other")
    assert [(change.family, *change.chains) for change in node.changes.receive(TIMEOUT)] == [(Family.IPV4, "services")]
    assert [(change.family, *change.chains) for change in node.changes.receive(TIMEOUT)] == [(Family.IPV6, "other")]
    assert node.next_changes() == ()


@pytest.mark.parametrize("in_container", [False, True])
def test_changing_process_is_named(node: Node, monkeypatch: pytest.MonkeyPatch, *, in_container: bool) -> None:
    """For another knft, the id of the process itself if /proc shows it, otherwise of its worker process."""
    if in_container:
        monkeypatch.setattr(process_names, "sees_host_processes", lambda: False)
    sees_host = process_names.sees_host_processes()
    node.nft("flush chain ip knft services")
    node.libnftables.run("add table ip foreign")
    node.changes.set_own_port_ids(frozenset())
    node.libnftables.run("flush chain ip knft other")
    processes = [change.process for _ in range(2) for change in node.changes.receive(TIMEOUT)]
    assert [re.sub(r"\(pid [1-9][0-9]*\)", "(pid N)", process) for process in processes] == [
        "nft (pid N)",
        "knft (pid N)",
    ]
    assert (processes[1] == f"knft (pid {os.getpid()})") == sees_host


def test_change_of_knft_table_in_a_transaction_with_another_table_is_reported(node: Node) -> None:
    """The kernel puts both into one buffer, or the filter drops the first and passes the second."""
    node.nft(f"{_table('ip', 'foreign')}\nflush chain ip knft services")
    assert [change.chains for change in node.changes.receive(TIMEOUT)] == [{"services"}]
    node.nft(
        f"{_many(LARGE_TRANSACTION_ELEMENTS // 10, 'ip foreign')}\nflush chain ip knft other\nadd chain ip foreign more"
    )
    assert [change.chains for change in node.changes.receive(TIMEOUT)] == [{"other"}]
    assert node.next_changes() == ()


def test_large_change_is_reported_once(node: Node) -> None:
    node.nft(_many(LARGE_TRANSACTION_ELEMENTS))
    (change,) = node.changes.receive(TIMEOUT)
    assert (set(change.sets), change.overrun) == ({"members"}, False)
    assert node.next_changes() == ()


def test_destroyed_table_is_reported(node: Node) -> None:
    """Kernels since 6.3 have NFT_MSG_DESTROYTABLE; older ones refuse it, and this nft may not support it."""
    batch = struct.pack("=BBH", 0, 0, socket.htons(10))
    destroy = struct.pack("=BBH", 2, 0, 0) + nftables_messages.table_attribute("knft")
    parts = ((0x10, 1, batch), (0xA00 | 26, 5, destroy), (0x11, 1, batch))
    sent = b"".join(
        struct.pack("=IHHII", 16 + len(body), kind, flags, number, 0) + body
        for number, (kind, flags, body) in enumerate(parts)
    )
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12) as netlink:
        netlink.sendto(sent, (0, 0))
        (error,) = struct.unpack_from("=i", netlink.recv(1 << 16), 16)
    if error:
        assert "table ip knft" in node.namespace.run(["nft", "list", "tables"]).stdout
    else:
        assert [change.table_gone for change in node.changes.receive(TIMEOUT)] == [True]


def test_own_changes_are_dropped_in_the_kernel(node: Node) -> None:
    """Own changes cannot overrun the buffer; foreign changes are reported afterwards."""
    for command in (
        "add element ip knft members { 10.0.0.9 }",
        "flush chain ip6 knft services",
        _many(LARGE_TRANSACTION_ELEMENTS),
    ):
        node.libnftables.run(command)
    node.libnftables.run("delete table ip6 knft")
    assert node.queued_kinds() == []
    node.nft("flush chain ip knft services")
    assert [change.chains for change in node.changes.receive(TIMEOUT)] == [{"services"}]


def test_changes_of_new_worker_are_ignored_once_its_port_is_set(node: Node) -> None:
    """The old worker's port no longer counts, and queued changes of the new worker are discarded."""
    second, ports = library_and_ports()
    with second:
        second.run("add element ip knft members { 10.0.0.9 }")
        assert [change.sets for change in node.changes.receive(TIMEOUT)] == [{"members"}]

        second.run("add element ip knft members { 10.0.0.10 }")
        node.changes.set_own_port_ids(ports)
        assert node.next_changes() == ()
        second.run(_many(1000))
        assert node.queued_kinds() == []

    node.libnftables.run("flush chain ip knft services")
    (change,) = node.changes.receive(TIMEOUT)
    assert change.chains == {"services"}


def test_changes_to_other_tables_are_ignored(node: Node) -> None:
    """Including tables of the same name in other families, and with similar names."""
    names = [
        ("inet", "knft"),
        ("bridge", "knft"),
        ("ip", "knft2"),
        ("ip", "knf"),
        ("ip6", "knft-and-more"),
        ("ip", "k"),
    ]
    for family, name in names:
        node.nft(_table(family, name))
        node.nft(f"flush set {family} {name} members\nflush chain {family} {name} services")
        node.nft(f"delete table {family} {name}")
    assert node.next_changes() == ()
    node.nft("flush chain ip knft services")
    assert [change.chains for change in node.changes.receive(TIMEOUT)] == [{"services"}]


def test_kernel_drops_changes_to_other_tables(node: Node) -> None:
    """Of transactions with one message per buffer, only NEW_GENERATION passes."""
    node.nft("table inet knft; table ip foreign; table ip6 knft2")
    node.queued_kinds()
    for name in ("inet knft", "ip foreign", "ip6 knft2"):
        node.nft(f"add chain {name} some")
        node.nft(f"add rule {name} some accept")
        node.nft(f"delete table {name}; add table {name}")
    kinds = node.queued_kinds()
    assert kinds.count([nftables_messages.NEW_GENERATION]) == 9
    assert [len(buffer) for buffer in kinds if buffer != [nftables_messages.NEW_GENERATION]] == [4, 4, 4]


@pytest.mark.parametrize("family", Family)
def test_dynamic_elements_cause_no_notifications(node: Node, family: Family) -> None:
    kind, loopback, protocol = (
        ("ipv4_addr", "127.0.0.1", socket.AF_INET) if family is Family.IPV4 else ("ipv6_addr", "::1", socket.AF_INET6)
    )
    node.libnftables.run(f"""
        table {family.nft} knft {{
            set clients {{ type {kind}
                flags dynamic,timeout
                timeout 2s
                gc-interval 100ms
            }}
            chain remember {{ type filter hook output priority 0
                update @clients {{ {family.nft} daddr timeout 2s }}
            }}
        }}
    """)
    with links.netlink(node.namespace) as link:
        link.up("lo")

    def remembered() -> bool:
        return "expires" in node.namespace.run(["nft", "list", "set", family.nft, "knft", "clients"]).stdout

    def send() -> bool:
        with socket.socket(protocol, socket.SOCK_DGRAM) as packets, suppress(OSError):
            packets.sendto(b"x", (loopback, 9))
        return remembered()

    wait_until(send)
    wait_until(lambda: not remembered())
    time.sleep(0.3)  # Until the expired element is garbage-collected, too.
    assert node.queued_kinds() == []


@pytest.mark.parametrize(
    ("change", "gone"), [("delete table ip6 knft", True), ("flush chain ip6 knft services", False)]
)
def test_overrun_is_reported_for_both_families(
    namespace: Namespace, monkeypatch: pytest.MonkeyPatch, change: str, *, gone: bool
) -> None:
    """Later changes are reported, without remains of the transaction that was received in part."""
    monkeypatch.setattr(notifications, "BUFFER_BYTES", 0)  # The kernel raises it to its minimum.
    with Node(namespace) as node:
        changes = node.changes
        changes._transaction._touched[Family.IPV4] = notifications._TouchedObjects()
        node.nft(_many(LARGE_TRANSACTION_ELEMENTS))
        assert changes.receive(TIMEOUT) == tuple(ForeignChange(family, overrun=True) for family in Family)
        assert node.queued_kinds() == []
        node.nft(change)
        (reported,) = changes.receive(TIMEOUT)
        assert (reported.family, reported.overrun, reported.table_gone, "services" in reported.chains) == (
            Family.IPV6,
            False,
            gone,
            True,
        )


def test_ignored_changes_do_not_overrun_the_buffer(namespace: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifications, "BUFFER_BYTES", 0)
    with Node(namespace) as node:
        node.libnftables.run(_many(LARGE_TRANSACTION_ELEMENTS))
        assert node.next_changes() == ()
        for _ in range(20):
            node.nft("table ip foreign; flush table ip foreign")
            node.nft("delete table ip foreign")
            assert node.next_changes() == ()


def test_receiving_thread_reports_at_once_and_stops(node: Node) -> None:
    with _receiving_thread(node.changes) as received:
        node.nft("flush chain ip knft services")
        wait_until(lambda: received)
    assert [change.chains for change in received] == [{"services"}]
    node.changes.stop()
    assert node.changes.receive(TIMEOUT) == ()


def test_stop_takes_precedence_over_queued_changes(node: Node) -> None:
    """Otherwise the thread would not end while changes keep arriving."""
    node.nft("flush chain ip knft services")
    node.changes.stop()
    assert node.next_changes() == ()


def test_other_network_namespaces_are_ignored(node: Node) -> None:
    other = Namespace.create("other")
    other.run(["nft", "-f", "-"], stdin=_table("ip"))
    other.close()
    assert node.queued_kinds() == []


def test_reopened_monitor_ignores_own_changes(node: Node) -> None:
    node.nft("flush chain ip knft other")
    node.changes.reopen()
    assert node.next_changes() == ()
    node.libnftables.run("flush chain ip knft other")
    assert node.next_changes() == ()
    node.nft("flush chain ip knft services")
    assert [change.chains for change in node.next_changes()] == [{"services"}]
