"""What others do to knft's table is told, and nothing else is: by the real kernel's notifications.

The kernel queues them before the commit returns, so what has not come at once does not come at all.
"""

import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

import pytest

from knft.kernel import messages, notifications
from knft.kernel.notifications import ForeignChange, ForeignChanges
from knft.nft.objects import Family
from tests.kernel.nft_process import library_and_ports
from tests.support.lab import links
from tests.support.lab.namespace import Namespace

pytestmark = pytest.mark.kernel

GUARD = 30.0
"""Seconds until a test is known to hang."""
# Elsewhere libnftables may not enlarge its send buffer, and a transaction has to fit into the usual one.
BIG = 50_000 if Path("/proc/self/uid_map").read_text().split()[2] == str(2**32 - 1) else 1000
"""How many elements a big transaction has, in the first user namespace and in others."""
ADDRESSES = {"ip": ("ipv4_addr", "10.0.0.1", "10.0.0.2"), "ip6": ("ipv6_addr", "fd00::1", "fd00::2")}
FAMILIES: tuple[Family, ...] = ("ip", "ip6")


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
    """The tables of both families, made by knft's library; what knft hears, and somebody else with nft."""

    def __init__(self, namespace: Namespace) -> None:
        self.namespace = namespace
        self.libnftables, ports = library_and_ports()
        self.libnftables.run(_table("ip") + _table("ip6"))
        self.changes = ForeignChanges("knft", ports)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.changes.close()
        self.libnftables.close()

    def nft(self, commands: str) -> None:
        self.namespace.run(["nft", "-f", "-"], stdin=commands)

    def heard(self) -> tuple[ForeignChange, ...]:
        """Return what waits, of one transaction."""
        return self.changes.receive(0)

    def queued(self) -> list[list[int]]:
        """Return the kinds of messages that passed the kernel's filter, for each buffer, instead of hearing them."""
        buffers = []
        with suppress(BlockingIOError):
            while True:
                buffers.append([message.kind for message in messages.split(self.changes._socket.recv(1 << 16))])
        return buffers


@pytest.fixture
def node(namespace: Namespace) -> Iterator[Node]:
    with Node(namespace) as made:
        yield made


@contextmanager
def _followed(changes: ForeignChanges) -> Iterator[list[ForeignChange]]:
    """Have a thread receive, and hold it to ending once it is told to stop."""
    heard: list[ForeignChange] = []

    def follow() -> None:
        while found := changes.receive(GUARD):
            heard.extend(found)

    thread = threading.Thread(target=follow)
    thread.start()
    start = time.monotonic()
    yield heard
    changes.stop()
    thread.join()
    assert time.monotonic() - start < GUARD


@pytest.mark.parametrize("family", FAMILIES)
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
        ("add counter {table} alien", {}),
        ("add table {table} {{ flags dormant; }}", {}),
        ("delete table {table}", {"chains": ["other", "services"], "sets": ["members", "verdicts"], "gone": True}),
        (
            "delete table {table}; add table {table}",
            {"chains": ["other", "services"], "sets": ["members", "verdicts"]},
        ),
    ],
)
def test_what_somebody_else_does_is_told(
    node: Node, family: Family, command: str, expected: dict[str, list[str]]
) -> None:
    _, first, second = ADDRESSES[family]
    node.nft(command.format(table=f"{family} knft", first=first, second=second))

    (change,) = node.changes.receive(GUARD)

    assert (change.family, change.table_gone, change.overrun) == (family, bool(expected.get("gone")), False)
    assert sorted(change.chains) == expected.get("chains", [])
    assert sorted(change.sets) == expected.get("sets", [])
    assert change.process.startswith("nft (pid ")
    assert node.heard() == ()


def test_a_flush_of_the_whole_ruleset_is_told_for_both_families(node: Node) -> None:
    node.nft(_table("ip", "alien"))
    node.nft("flush ruleset")
    changes = node.changes.receive(GUARD)
    assert {change.family for change in changes if change.table_gone} == {"ip", "ip6"}
    assert len(changes) == 2
    assert node.heard() == ()


def test_each_transaction_is_told_by_itself(node: Node) -> None:
    node.nft("flush chain ip knft services")
    node.nft("flush chain ip6 knft other")
    assert [(change.family, *change.chains) for change in node.changes.receive(GUARD)] == [("ip", "services")]
    assert [(change.family, *change.chains) for change in node.changes.receive(GUARD)] == [("ip6", "other")]
    assert node.heard() == ()


def test_the_process_is_told(node: Node) -> None:
    """With the host's number for it, which in a container is not this test's."""
    node.nft("flush chain ip knft services")
    node.libnftables.run("add table ip alien")
    node.changes.own_ports(frozenset())
    node.libnftables.run("flush chain ip knft other")
    told = [change.process for _ in range(2) for change in node.changes.receive(GUARD)]
    assert [re.sub(r"\(pid [1-9][0-9]*\)", "(pid N)", process) for process in told] == [
        "nft (pid N)",
        f"{Path(f'/proc/{node.libnftables.pid}/comm').read_text().strip()} (pid N)",
    ]


def test_a_change_is_told_though_it_follows_on_one_of_another_table(node: Node) -> None:
    """The kernel puts both into one buffer, or the filter drops the one and passes the other."""
    node.nft(f"{_table('ip', 'alien')}\nflush chain ip knft services")
    assert [change.chains for change in node.changes.receive(GUARD)] == [{"services"}]
    node.nft(f"{_many(BIG // 10, 'ip alien')}\nflush chain ip knft other\nadd chain ip alien more")
    assert [change.chains for change in node.changes.receive(GUARD)] == [{"other"}]
    assert node.heard() == ()


def test_a_big_change_is_told_once(node: Node) -> None:
    node.nft(_many(BIG))
    (change,) = node.changes.receive(GUARD)
    assert (set(change.sets), change.overrun) == ({"members"}, False)
    assert node.heard() == ()


def test_a_table_that_is_destroyed_is_told(node: Node) -> None:
    """Kernels from 6.3 on have a request of its own for that, which older ones refuse, and this nft may not know."""
    batch = struct.pack("=BBH", 0, 0, socket.htons(10))
    destroy = struct.pack("=BBH", 2, 0, 0) + messages.table_attribute("knft")
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
        assert [change.table_gone for change in node.changes.receive(GUARD)] == [True]


def test_own_changes_are_silent_and_cost_nothing(node: Node) -> None:
    """They do not even reach this process, so that there is no overrun either; and others are heard after them."""
    for command in ("add element ip knft members { 10.0.0.9 }", "flush chain ip6 knft services", _many(BIG)):
        node.libnftables.run(command)
    node.libnftables.run("delete table ip6 knft")
    assert node.queued() == []
    node.nft("flush chain ip knft services")
    assert [change.chains for change in node.changes.receive(GUARD)] == [{"services"}]


def test_another_process_of_knft_is_told_apart_once_its_port_is_known(node: Node) -> None:
    """A restart: the old context's port counts no more, and what waited from the new one is let go as well."""
    second, ports = library_and_ports()
    with second:
        second.run("add element ip knft members { 10.0.0.9 }")
        assert [change.sets for change in node.changes.receive(GUARD)] == [{"members"}]

        second.run("add element ip knft members { 10.0.0.10 }")
        node.changes.own_ports(ports)
        assert node.heard() == ()
        second.run(_many(1000))
        assert node.queued() == []

    node.libnftables.run("flush chain ip knft services")
    (change,) = node.changes.receive(GUARD)
    assert change.chains == {"services"}


def test_changes_to_other_tables_are_silent(node: Node) -> None:
    """Also of the same name in other families, of names that begin alike, and of such that are longer by a word."""
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
    assert node.heard() == ()
    node.nft("flush chain ip knft services")
    assert [change.chains for change in node.changes.receive(GUARD)] == [{"services"}]


def test_the_kernel_drops_what_others_do_elsewhere(node: Node) -> None:
    """Of transactions that send a message at a time only the generation is left."""
    node.nft("table inet knft; table ip alien; table ip6 knft2")
    node.queued()
    for name in ("inet knft", "ip alien", "ip6 knft2"):
        node.nft(f"add chain {name} some")
        node.nft(f"add rule {name} some accept")
        node.nft(f"delete table {name}; add table {name}")
    kinds = node.queued()
    assert kinds.count([messages.NEW_GENERATION]) == 9
    assert [len(buffer) for buffer in kinds if buffer != [messages.NEW_GENERATION]] == [4, 4, 4]


def _eventually(claim: Callable[[], bool]) -> None:
    deadline = time.monotonic() + GUARD
    while not claim():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("family", FAMILIES)
def test_clients_that_packets_remember_and_time_forgets_are_silent(node: Node, family: Family) -> None:
    kind, loopback, protocol = (
        ("ipv4_addr", "127.0.0.1", socket.AF_INET) if family == "ip" else ("ipv6_addr", "::1", socket.AF_INET6)
    )
    node.libnftables.run(f"""
        table {family} knft {{
            set clients {{ type {kind}
                flags dynamic,timeout
                timeout 2s
                gc-interval 100ms
            }}
            chain remember {{ type filter hook output priority 0
                update @clients {{ {family} daddr timeout 2s }}
            }}
        }}
    """)
    with links.netlink(node.namespace) as link:
        link.up("lo")

    def remembered() -> bool:
        return "expires" in node.namespace.run(["nft", "list", "set", family, "knft", "clients"]).stdout

    def send() -> bool:
        with socket.socket(protocol, socket.SOCK_DGRAM) as packets, suppress(OSError):
            packets.sendto(b"x", (loopback, 9))
        return remembered()

    _eventually(send)
    _eventually(lambda: not remembered())
    time.sleep(0.3)  # Until it is not only hidden but collected.
    assert node.queued() == []


@pytest.mark.parametrize(
    ("change", "gone"), [("delete table ip6 knft", True), ("flush chain ip6 knft services", False)]
)
def test_an_overrun_is_told_for_both_families_and_then_it_goes_on(
    namespace: Namespace, monkeypatch: pytest.MonkeyPatch, change: str, *, gone: bool
) -> None:
    """With nothing left of the transaction that was heard in part."""
    monkeypatch.setattr(notifications, "BUFFER_BYTES", 0)  # The kernel makes its minimum of it.
    with Node(namespace) as node:
        changes = node.changes
        changes._transaction._touched["ip"] = notifications._Touched()
        node.nft(_many(BIG))
        assert changes.receive(GUARD) == tuple(ForeignChange(family, overrun=True) for family in FAMILIES)
        assert node.queued() == []
        node.nft(change)
        (told,) = changes.receive(GUARD)
        assert (told.family, told.overrun, told.table_gone, "services" in told.chains) == ("ip6", False, gone, True)


def test_neither_own_changes_nor_others_elsewhere_overrun_anything(
    namespace: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifications, "BUFFER_BYTES", 0)
    with Node(namespace) as node:
        node.libnftables.run(_many(BIG))
        assert node.heard() == ()
        for _ in range(20):
            node.nft("table ip alien; flush table ip alien")
            node.nft("delete table ip alien")
            assert node.heard() == ()


def test_a_thread_that_follows_hears_at_once_and_ends_when_it_is_stopped(node: Node) -> None:
    with _followed(node.changes) as heard:
        node.nft("flush chain ip knft services")
        _eventually(lambda: bool(heard))
    assert [change.chains for change in heard] == [{"services"}]
    node.changes.stop()
    assert node.changes.receive(GUARD) == ()


def test_it_ends_though_there_is_no_end_of_changes(node: Node) -> None:
    """Stopping is seen before what waits."""
    node.nft("flush chain ip knft services")
    node.changes.stop()
    assert node.heard() == ()


def test_another_namespace_is_not_heard(node: Node) -> None:
    other = Namespace.create("other")
    other.run(["nft", "-f", "-"], stdin=_table("ip"))
    other.close()
    assert node.queued() == []


def test_a_way_that_was_opened_anew_hears_others_and_not_oneself(node: Node) -> None:
    node.nft("flush chain ip knft other")
    node.changes.reopen()
    assert node.heard() == ()
    node.libnftables.run("flush chain ip knft other")
    assert node.heard() == ()
    node.nft("flush chain ip knft services")
    assert [change.chains for change in node.heard()] == [{"services"}]
