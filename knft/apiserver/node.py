"""OwnNode: the Node object of this machine.

knft waits for it at the start. Rules depend on the Node's addresses and pod CIDRs. When these change, the process exits
with the reason, and the kubelet or systemd starts a new one, which finds the rules in place
(docs/behaviour/node.md#node).
"""

import logging
import threading
from collections.abc import Callable, Iterable

from msgspec import structs

from knft.decide.node import node_addresses
from knft.errors import ApiServerError
from knft.families import Family
from knft.model import addresses
from knft.model.objects import Node, ObjectChange

log = logging.getLogger("knft")

POLL_SECONDS = 1.0
NODE_TIMEOUT_SECONDS = 300.0
"""How long the start waits for the Node."""
DELETION_TAINT = "ToBeDeletedByClusterAutoscaler"
"""The cluster autoscaler is about to delete a node with this taint (docs/behaviour/health.md#proxy)."""


def host_ips(node: Node) -> tuple[str, ...]:
    """Return the node's addresses, at most one of each family, InternalIP before ExternalIP; the first is primary."""
    found: dict[Family, str] = {}
    for text in node_addresses(node):
        parsed = addresses.parse_address(text)
        if parsed is not None:
            found.setdefault(parsed[0], parsed[1])
    return tuple(found.values())


def pod_cidrs(node: Node) -> tuple[str, ...]:
    """Return the CIDRs of the node's pods."""
    return (node.spec.pod_cidrs if node.spec is not None else None) or ()


def is_eligible(node: Node | None) -> bool:
    """Tell whether load balancers should send new connections to the node: it exists and is not about to be deleted."""
    if node is None or node.metadata.deletion_timestamp is not None:
        return False
    taints = (node.spec.taints if node.spec is not None else None) or ()
    return all(taint.key != DELETION_TAINT for taint in taints)


def missing_requirement(name: str, node: Node | None, *, needs_pod_cidrs: bool) -> str:
    """Return why knft cannot start with this Node, "" if it can.

    ``needs_pod_cidrs`` tells that local traffic is detected by the node's pod CIDRs.
    """
    if node is None:
        return f"Node {name!r} not found; check --hostname-override"
    if not host_ips(node):
        return f"Node {name!r} has no InternalIP and no ExternalIP"
    if needs_pod_cidrs and not pod_cidrs(node):
        return f"Node {name!r} has no podCIDRs, which --detect-local-mode=NodeCIDR needs"
    return ""


def restart_reason(name: str, before: Node, after: Node | None, *, needs_pod_cidrs: bool) -> str:
    """Return why a process that started with Node ``before`` has to restart for ``after``, "" if it can continue."""
    if after is None:
        return f"Node {name!r} was deleted"
    old, new = pod_cidrs(before), pod_cidrs(after)
    if needs_pod_cidrs and old != new:
        return f"podCIDRs of Node {name!r} changed from {_joined(old)} to {_joined(new)}"
    old, new = host_ips(before), host_ips(after)
    # A new process could not start without addresses.
    return f"addresses of Node {name!r} changed from {_joined(old)} to {_joined(new)}" if new and old != new else ""


def _joined(texts: tuple[str, ...]) -> str:
    return ", ".join(texts) or "none"


class OwnNode:
    """The current Node; safe to use from any thread."""

    def __init__(self, name: str, *, needs_pod_cidrs: bool, request_restart: Callable[[str], None]) -> None:
        """Call ``request_restart`` once, with the reason, when the process has to exit.

        The caller must leave the rules in place.
        """
        self._name = name
        self._needs_pod_cidrs = needs_pod_cidrs
        self._request_restart = request_restart
        self._changed = threading.Condition()
        self._node: Node | None = None
        self._initial: Node | None = None
        """The Node that the process started with; None until ``wait_ready`` returns, and while the process exits."""
        self._is_exiting = False

    def current(self) -> Node | None:
        """Return the Node, None if it does not exist."""
        return self._node

    @property
    def eligible(self) -> bool:
        """Whether load balancers should send new connections here."""
        return is_eligible(self._node)

    def filter_changes(self, changes: Iterable[ObjectChange]) -> tuple[ObjectChange, ...]:
        """Record the Node's changes among changes of any kind; return those that may be applied to the rules.

        A change that requires a restart is not applied, nor is any change of the Node after it. A Node that has lost
        its addresses keeps those that it had.
        """
        return tuple(applied for change in changes if (applied := self._filter_change(change)) is not None)

    def _filter_change(self, change: ObjectChange) -> ObjectChange | None:
        found = change.current or change.previous
        if not isinstance(found, Node) or found.metadata.name != self._name:
            return change
        node = change.current if isinstance(change.current, Node) else None
        with self._changed:
            self._node = node
            self._changed.notify_all()
            initial = self._initial
            if initial is None:
                return None if self._is_exiting else change
            reason = restart_reason(self._name, initial, node, needs_pod_cidrs=self._needs_pod_cidrs)
            if reason:
                self._initial, self._is_exiting = None, True
        if reason:
            self._request_restart(f"{reason}; exiting, to be restarted; the rules stay")
            return None
        if node is not None and not host_ips(node):
            log.warning("Node %r has lost its addresses; its previous addresses stay in use", self._name)
            return structs.replace(change, current=structs.replace(node, status=initial.status))
        return change

    def wait_ready(
        self,
        stop: threading.Event,
        connection_problem: Callable[[], str] = lambda: "",
        *,
        describe_nodes: Callable[[], str] = lambda: "",
        timeout: float = NODE_TIMEOUT_SECONDS,
        poll_interval: float = POLL_SECONDS,
    ) -> Node | None:
        """Wait until the Node exists and has addresses and, if needed, podCIDRs; its condition Ready does not matter.

        Returns the Node, or None if ``stop`` is set before.

        Raises ApiServerError with the missing requirement after ``timeout`` seconds. ``connection_problem`` returns why
        the Node is unknown, "" if it is known: such time does not count, because knft waits for the API server without
        a limit. ``describe_nodes`` lists the Nodes that exist, for the messages about a missing one.
        """
        waited, polls, logged = 0.0, 0, ""
        while not stop.is_set():
            with self._changed:
                missing = missing_requirement(self._name, self._node, needs_pod_cidrs=self._needs_pod_cidrs)
                if not missing:
                    self._initial = self._node
                    return self._node
                problem, is_missing = connection_problem(), self._node is None
                gives_up = waited >= timeout and not problem
                if not gives_up:
                    self._changed.wait(poll_interval)
            if gives_up:
                msg = f"{_with_nodes(missing, describe_nodes) if is_missing else missing}; gave up after {timeout:g} s"
                raise ApiServerError(msg)
            polls += 1
            waited += 0.0 if problem else poll_interval
            reason = problem or missing
            if polls > 1 and reason != logged:
                logged = reason
                if is_missing and not problem:
                    log.warning("waiting: %s", _with_nodes(missing, describe_nodes))
                else:
                    log.info("waiting: %s", reason)
        return None


def _with_nodes(missing: str, describe_nodes: Callable[[], str]) -> str:
    """Return a message about a missing Node with the Nodes that exist."""
    nodes = describe_nodes()
    return f"{missing}; {nodes}" if nodes else missing
