"""OwnNode: the Node object of this machine: waited for at the start, and what it means when it changes (J.3).

What rules are made of once (the node's addresses, its pod CIDRs) is not exchanged in a running process: it ends, says
why, and whoever supervises it starts another, which finds the rules in place.
"""

import logging
import threading
from collections.abc import Callable, Iterable

from msgspec import structs

from knft.decide.node import node_addresses
from knft.errors import ClusterError
from knft.model import addresses
from knft.model.names import Family
from knft.model.objects import Change, Node

log = logging.getLogger("knft")

POLL_SECONDS = 1.0
PATIENCE_SECONDS = 300.0
"""How long the Node is waited for at the start."""
LEAVING_TAINT = "ToBeDeletedByClusterAutoscaler"
"""Who has this taint is about to go, and load balancers should send it nothing new (G.1)."""


def host_ips(node: Node) -> tuple[str, ...]:
    """Return the node's addresses, at most one of each family, InternalIP before ExternalIP; the first is primary."""
    found: dict[Family, str] = {}
    for text in node_addresses(node):
        parsed = addresses.parse_address(text)
        if parsed is not None:
            found.setdefault(parsed[0], parsed[1])
    return tuple(found.values())


def pod_cidrs(node: Node) -> tuple[str, ...]:
    """Return the ranges of addresses that the node's pods have."""
    return (node.spec.pod_cidrs if node.spec is not None else None) or ()


def is_eligible(node: Node | None) -> bool:
    """Tell whether the node is to get new connections from load balancers: it is there, and not about to go (G.1)."""
    if node is None or node.metadata.deletion_timestamp is not None:
        return False
    taints = (node.spec.taints if node.spec is not None else None) or ()
    return all(taint.key != LEAVING_TAINT for taint in taints)


def what_lacks(name: str, node: Node | None, *, by_pod_cidrs: bool) -> str:
    """Return what knft cannot begin without, "" where nothing lacks; ``by_pod_cidrs``: detection is by NodeCIDR."""
    if node is None:
        return f"there is no Node {name} (is --hostname-override right?)"
    if not host_ips(node):
        return f"Node {name} has no InternalIP and no ExternalIP"
    if by_pod_cidrs and not pod_cidrs(node):
        return f"Node {name} has no podCIDRs, and --detect-local-mode is NodeCIDR"
    return ""


def why_end(name: str, before: Node, after: Node | None, *, by_pod_cidrs: bool) -> str:
    """Return why a process that began with one form of the Node has to end with another, "" where it can go on."""
    if after is None:
        return f"Node {name} was deleted"
    was, now = pod_cidrs(before), pod_cidrs(after)
    if by_pod_cidrs and was != now:
        return f"the podCIDRs of Node {name} were {_listed(was)} and are {_listed(now)}"
    was, now = host_ips(before), host_ips(after)
    # Without any, there is nothing better to begin anew with.
    return f"the addresses of Node {name} were {_listed(was)} and are {_listed(now)}" if now and was != now else ""


def _listed(texts: tuple[str, ...]) -> str:
    return ", ".join(texts) or "none"


class OwnNode:
    """The Node as it is now; from any thread."""

    def __init__(self, name: str, *, by_pod_cidrs: bool, end: Callable[[str], None]) -> None:
        """``end`` is called once, with a sentence, when the process has to end; rules are to stay then."""
        self._name = name
        self._by_pod_cidrs = by_pod_cidrs
        self._end = end
        self._news = threading.Condition()
        self._node: Node | None = None
        self._first: Node | None = None
        """The Node that the process began with; None while it has not begun."""
        self._ends = False

    def current(self) -> Node | None:
        """Return the Node, None where there is none."""
        return self._node

    @property
    def eligible(self) -> bool:
        """Whether load balancers should send new connections here."""
        return is_eligible(self._node)

    def take(self, changes: Iterable[Change]) -> tuple[Change, ...]:
        """Take in what became of the Node, among changes of any kind; return those that rules may follow.

        What the process ends by is none of them, nor is whatever the Node becomes after that. A Node that has lost its
        addresses keeps those that it had.
        """
        return tuple(kept for change in changes if (kept := self._take_one(change)) is not None)

    def _take_one(self, change: Change) -> Change | None:
        found = change.current or change.previous
        if not isinstance(found, Node) or found.metadata.name != self._name:
            return change
        node = change.current if isinstance(change.current, Node) else None
        with self._news:
            self._node = node
            self._news.notify_all()
            first = self._first
            if first is None:
                return None if self._ends else change
            why = why_end(self._name, first, node, by_pod_cidrs=self._by_pod_cidrs)
            if why:
                self._first, self._ends = None, True
        if why:
            self._end(f"{why}; knft ends, to begin anew, and the rules stay")
            return None
        if node is not None and not host_ips(node):
            log.warning("Node %s has no addresses any more; the ones it had stay in use", self._name)
            return structs.replace(change, current=structs.replace(node, status=first.status))
        return change

    def wait_ready(
        self,
        stop: threading.Event,
        trouble: Callable[[], str] = lambda: "",
        *,
        patience: float = PATIENCE_SECONDS,
        poll: float = POLL_SECONDS,
    ) -> Node | None:
        """Wait until knft can begin; return the Node, or None where ``stop`` was set before.

        Raises ClusterError after ``patience`` seconds, with what lacked last. ``trouble`` says what is wrong with the
        API server, if anything is: then nobody knows what the Node lacks, and the time does not count. An API server
        is waited for as long as it takes.
        """
        waited, looks, said = 0.0, 0, ""
        while not stop.is_set():
            with self._news:
                lacks = what_lacks(self._name, self._node, by_pod_cidrs=self._by_pod_cidrs)
                if not lacks:
                    self._first = self._node
                    return self._node
                wrong = trouble()
                if waited >= patience and not wrong:
                    msg = f"{lacks}; it was waited for {patience:g} s"
                    raise ClusterError(msg)
                self._news.wait(poll)
            looks += 1
            waited += 0.0 if wrong else poll
            lacks = wrong or lacks
            if looks > 1 and lacks != said:
                log.info("waiting: %s", lacks)
                said = lacks
        return None
