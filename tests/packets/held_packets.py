"""Holds a packet between two rules on the node during a commit, then releases it and returns its outcome.

A packet is held by rules that it evaluates again and again, until the set ``released`` has an element: the kernel
evaluates a packet by the chains that existed when it entered the hook, but looks up the elements that exist at the time
of each lookup. A packet that nothing releases leaves after a few seconds, so that the kernel never hangs.

A held packet keeps one CPU busy. So all packets are sent from a thread on the last CPU, and everything else runs on the
other CPUs, before other processes of the machine if that is permitted. The client's port selects the point at which its
packet is held.
"""

import errno
import itertools
import json
import os
import select
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from enum import Enum
from typing import NamedTuple, Self

from knft.families import Family
from knft.kernel.command_runner import CommandRunner
from knft.kernel.nftables_messages import split
from knft.kernel.printable_names import printable_name
from tests.support.lab import plan
from tests.support.lab.namespace import Namespace
from tests.support.lab.topology import Host
from tests.support.waiting import TIMEOUT

REFUSED, DROPPED, SILENT = "refused", "dropped", "no answer"
"""Outcomes of a packet that no server answers. SILENT: it left the node, and nothing came back."""

_JUMPS, _LEVELS, _RULES = 39, 3, 3000
_HAIRPIN_ATTEMPTS = 20
"""How often a packet is sent until one has its own client as its endpoint, which is chosen at random."""
_PORTS_PER_POINT = 2000
_RELEASE_PORT = 9
_TRACE_GROUP = 1 << (9 - 1)  # NFNLGRP_NFTRACE
_NETFILTER = 12  # NETLINK_NETFILTER
_CHAIN = 2  # NFTA_TRACE_CHAIN
_ICMP_ERRORS = {errno.ECONNREFUSED: REFUSED}


class Point(Enum):
    """Where a packet is held. The value is the first of the ports that select it.

    They are below 32768: the kernel gives higher ones to other packets.
    """

    LOOKED_UP = 16000
    """In the rule of a known client with a timeout of three hours, index 1, between the lookups of ID and endpoint.

    A packet cannot be held inside a rule, so two rules make the two lookups of knft's rule. They do not restart the
    timeout.
    """
    KNOWN = 18000
    """In the chain of known clients with a timeout of three hours, between the rules of indexes 1 and 2."""
    VERDICT = 20000
    """In chain ``services``, before the lookup of the verdict."""
    ENDPOINT = 22000
    """In the chain that the verdict leads to, before the lookup of the endpoint."""
    FILTER = 24000
    """After DNAT, before knft's filter chains."""
    MASQUERADING = 26000
    """Before knft's masquerading."""
    HAIRPIN = 28000
    """There too, but only if the packet has its own client as its endpoint."""
    NONE = 30000
    """Nowhere."""


_POINTS_IN_KNFT = (Point.LOOKED_UP, Point.KNOWN, Point.VERDICT, Point.ENDPOINT)
"""Points at which a rule of a chain of knft holds packets."""


class Target(NamedTuple):
    """Where a client sends its packet; ``key`` is the beginning of its element in ``map_name``."""

    client: Host
    address: str
    port: int
    map_name: str
    key: str

    @property
    def version(self) -> plan.Version:
        """The IP version."""
        return 6 if ":" in self.address else 4

    @property
    def family(self) -> Family:
        """The IP family."""
        return Family.IPV4 if self.version == 4 else Family.IPV6


class PacketHolder:
    """Holds packets in one namespace; a context manager.

    ``sentinel`` is a pod with a UDP server at ``sentinel_port``, which every client can reach without knft.
    ``hairpin_client`` is the pod that may be its own endpoint.
    """

    def __init__(
        self, namespace: Namespace, library: CommandRunner, sentinel: Host, sentinel_port: int, hairpin_client: Host
    ) -> None:
        """Take the node's namespace, and knft's library, which may change knft's tables; nothing is loaded yet."""
        self._library = library
        self._namespace = namespace
        self._sentinel, self._sentinel_port = sentinel, sentinel_port
        self._hairpin_client = hairpin_client
        self.answer_timeout = TIMEOUT
        """Seconds to wait for the answer to a packet that has left the node."""
        self._ports = {point: itertools.count(point.value) for point in Point}
        self._open = ExitStack()
        self._known_held: set[str] = set()
        """The families whose chain of known clients holds packets."""

    def __enter__(self) -> Self:
        """Load the rules that hold packets between hooks."""
        with self._namespace.entered():
            self._trace = self._open.enter_context(
                socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, _NETFILTER)
            )
            self._releasing = {
                version: self._open.enter_context(socket.socket(family, socket.SOCK_DGRAM))
                for version, family in ((4, socket.AF_INET), (6, socket.AF_INET6))
            }
        self._trace.bind((0, _TRACE_GROUP))
        self._change("\n".join(_hook_rules(self._hairpin_client)))
        self._open.callback(self._change, "delete table inet held")
        return self

    def __exit__(self, *_: object) -> None:
        """Remove these rules."""
        self._open.close()

    def _change(self, commands: str) -> None:
        with self._namespace.entered():  # The library may start a new process.
            self._library.run(commands)

    def load_into(self, family: str) -> None:
        """Load the rules that hold packets in knft's table of a family; the table's deletion removes them."""
        table = f"{family} knft"
        self._known_held.discard(family)
        self._change("\n".join((*_holding_chains(table), _holding_rule(table, "services", Point.VERDICT))))

    def during(self, commit: Callable[[], object], target: Target, point: Point) -> "Held":
        """Make a commit while a packet is held, and release it."""
        family = target.family.nft
        table = f"{family} knft" if point in _POINTS_IN_KNFT else "inet held"
        self._change(f"flush set {table} released")
        if point is Point.ENDPOINT:
            self._hold_in_target_chain(family, target)
        if point in (Point.KNOWN, Point.LOOKED_UP):
            self._hold_known_clients(family)
        outcomes = []
        for _ in range(_HAIRPIN_ATTEMPTS if point is Point.HAIRPIN else 1):
            with self._sending(target, point) as sending:
                if not sending.is_held():
                    outcomes.append(sending.outcome(self.answer_timeout))
                    continue
                commit()
                left_early = sending.has_left()
                self._release(target)
                outcomes.append(sending.outcome(self.answer_timeout))
                return Held(outcomes, not left_early)
        commit()
        return Held(outcomes, is_counted=False)

    def _release(self, target: Target) -> None:
        """Send the packet that adds the element to ``released``.

        A transaction would do more: from the next transaction on, a held packet finds the rules of the chains that were
        created in the one before.
        """
        loopback = "127.0.0.1" if target.version == 4 else "::1"
        self._releasing[target.version].sendto(b"!", (loopback, _RELEASE_PORT))

    def outcome(self, target: Target) -> str:
        """Send a packet that is not held, and return its outcome."""
        with self._sending(target, Point.NONE) as sending:
            return sending.outcome(self.answer_timeout)

    def _hold_in_target_chain(self, family: str, target: Target) -> None:
        listing = self._namespace.run(["nft", "list", "map", family, "knft", target.map_name]).stdout
        _, found, rest = listing.partition(f"{target.key} ")
        if found:
            chain = rest.partition(" : ")[2].split()[1].rstrip(",")
            self._change(_holding_rule(f"{family} knft", chain, Point.ENDPOINT))

    def _hold_known_clients(self, family: str) -> None:
        if family not in self._known_held:
            self._change("\n".join(_known_client_rules(family)))
            self._known_held.add(family)

    @contextmanager
    def _sending(self, target: Target, point: Point) -> Iterator["_Sending"]:
        sentinel = self._sentinel.address(target.version)
        with target.client.namespace.entered():
            client, check = (socket.socket(_socket_family(target), socket.SOCK_DGRAM) for _ in range(2))
        with client, check:
            client.bind(("", next(self._ports[point])))
            client.connect((target.address, target.port))
            check.connect((sentinel, self._sentinel_port))
            sending = _Sending(client, check, self._trace)
            try:
                yield sending
            finally:
                sending.join()


class Held(NamedTuple):
    """The outcomes of all packets that were sent; the last one was held if ``is_counted``."""

    outcomes: Sequence[str]
    is_counted: bool
    """Whether a packet was held from before the commit until after it."""


class _Sending:
    """A packet that a thread sends, and the rules' messages about it."""

    def __init__(self, client: socket.socket, check: socket.socket, trace: socket.socket) -> None:
        self._client, self._check, self._trace = client, check, trace
        self._seen: set[str] = set()
        self._receive()
        self._seen.clear()
        self._done_receiver, self._done_sender = socket.socketpair()
        self._thread = threading.Thread(target=self._send, name="held-packet")
        self._thread.start()

    def _send(self) -> None:
        """Send the packet, then one that is answered once the node has handled the first.

        Both pass through the queues of one CPU, which keep their order.
        """
        os.sched_setaffinity(0, {sending_cpu()})
        with self._done_sender:
            self._client.send(b"?")
            self._check.settimeout(TIMEOUT)
            self._check.send(b"?")
            self._check.recv(4096)

    def is_held(self) -> bool:
        """Wait until the packet is held, or was handled; tell whether it is held."""
        while "held-begin" not in self._seen and self._thread.is_alive():
            readable, _, _ = select.select([self._trace, self._done_receiver], [], [], TIMEOUT)
            assert readable, "the packet is neither held nor handled"
            self._receive()
            if self._done_receiver in readable:
                break
        return "held-begin" in self._seen

    def has_left(self) -> bool:
        """Tell whether the packet is no longer held."""
        self._receive()
        return "held-end" in self._seen

    def outcome(self, timeout: float) -> str:
        """Wait until the node has handled the packet; return the server that answered, or another outcome."""
        self.join()
        self._receive()
        self._client.settimeout(timeout if "held-passed" in self._seen else 0)
        try:
            return str(json.loads(self._client.recv(4096))["server"])
        except BlockingIOError:
            return DROPPED
        except TimeoutError:
            return SILENT
        except OSError as error:
            return _ICMP_ERRORS.get(error.errno or 0, str(error))

    def join(self) -> None:
        """Wait until the node has handled the packet."""
        self._thread.join()
        self._done_receiver.close()

    def _receive(self) -> None:
        try:
            while True:
                self._seen.update(printable_name(each.attribute(_CHAIN)) for each in split(self._trace.recv(1 << 16)))
        except BlockingIOError:
            return


def sending_cpu() -> int:
    """Return the CPU that sends packets."""
    return max(_ALL_CPUS)


_ALL_CPUS = os.sched_getaffinity(0)


@contextmanager
def other_cpus() -> Iterator[None]:
    """Run the calling thread, and the threads and processes that it starts, on all CPUs but the one that sends.

    They have a real-time priority, so that no other process delays a commit while a packet is held.
    """
    assert len(_ALL_CPUS) > 1, "a held packet keeps one CPU busy, so this test needs two"
    os.sched_setaffinity(0, _ALL_CPUS - {sending_cpu()})
    _set_scheduler(os.SCHED_RR, 1)
    try:
        yield
    finally:
        _set_scheduler(os.SCHED_OTHER, 0)
        os.sched_setaffinity(0, _ALL_CPUS)


def _set_scheduler(policy: int, priority: int) -> None:
    with suppress(PermissionError):
        os.sched_setscheduler(0, policy, os.sched_param(priority))


def _socket_family(target: Target) -> socket.AddressFamily:
    return socket.AF_INET if target.version == 4 else socket.AF_INET6


def _ports(first: Point, last: Point) -> str:
    return f"{first.value}-{last.value + _PORTS_PER_POINT - 1}"


def _holding_chains(table: str) -> Iterator[str]:
    """Yield commands that create the chain ``held``, which holds packets."""
    yield f"add set {table} released {{ type inet_proto; size 16; flags dynamic; }}"
    yield f"add chain {table} held-release {{ type filter hook output priority -300; }}"
    yield f"add rule {table} held-release udp dport {_RELEASE_PORT} update @released {{ meta l4proto }}"
    for level in range(_LEVELS + 1):
        chain = f"{table} held-{level}"
        yield f"add chain {chain}"
        yield f"add rule {chain} meta l4proto @released return"
        yield from [f"add rule {chain} " + (f"jump held-{level - 1}" if level else "meta length 1")] * (
            _JUMPS if level else _RULES
        )
    for name in ("begin", "end"):
        yield from _message_chain(table, f"held-{name}")
    yield f"add chain {table} held"
    for chain in ("held-begin", f"held-{_LEVELS}", "held-end"):
        yield f"add rule {table} held jump {chain}"


def _message_chain(table: str, name: str) -> Iterator[str]:
    """Yield commands that create a chain that reports each packet: the kernel reports the rules that match it."""
    yield f"add chain {table} {name}"
    yield f"add rule {table} {name} meta nftrace set 1"
    yield f"add rule {table} {name} meta nftrace set 0"


def _holding_rule(table: str, chain: str, point: Point) -> str:
    return f"insert rule {table} {chain} udp sport {_ports(point, point)} jump held"


def _known_client_rules(family: str) -> Iterator[str]:
    """Yield commands that hold packets in the chain of known clients, whose rule number 1 is that of index 1."""
    known = f"{family} knft affinity-10800-known-udp-0 index 1"
    yield f"add rule {known} udp sport {_ports(Point.KNOWN, Point.KNOWN)} jump held"
    key = f"{family} daddr . udp dport . numgen random mod 1 offset 1"
    client = f"{family} saddr . meta priority"
    looked_up = f"{family} knft held-looked-up"
    yield f"add chain {looked_up}"
    yield f"add rule {looked_up} jump held"
    yield f"add rule {looked_up} meta priority set none dnat {family} to {key} map @endpoints-udp"
    yield (
        f"insert rule {known} udp sport {_ports(Point.LOOKED_UP, Point.LOOKED_UP)} "
        f"meta priority set {key} map @endpoint-ids-udp {client} @affinity-clients jump held-looked-up"
    )


def _hook_rules(hairpin_client: Host) -> Iterator[str]:
    """Yield commands that create a table which holds packets between hooks, and reports those that pass the filters."""
    yield "add table inet held"
    yield from _holding_chains("inet held")
    yield from _message_chain("inet held", "held-passed")
    for hook in ("forward", "input"):
        yield f"add chain inet held {hook}-before {{ type filter hook {hook} priority -1; }}"
        yield f"add rule inet held {hook}-before udp sport {_ports(Point.FILTER, Point.FILTER)} jump held"
        yield f"add chain inet held {hook}-after {{ type filter hook {hook} priority 1; }}"
        yield f"add rule inet held {hook}-after udp sport {_ports(Point.LOOKED_UP, Point.NONE)} jump held-passed"
    yield "add chain inet held postrouting { type filter hook postrouting priority 98; }"
    yield f"add rule inet held postrouting udp sport {_ports(Point.MASQUERADING, Point.MASQUERADING)} jump held"
    own = _ports(Point.HAIRPIN, Point.HAIRPIN)
    for protocol, address in (("ip", hairpin_client.ipv4), ("ip6", hairpin_client.ipv6)):
        same = f"{protocol} saddr {address} {protocol} daddr {address}"
        yield f"add rule inet held postrouting {same} udp sport {own} jump held"
