"""Connects to frontends that appear and disappear, while packets are between two rules at each commit.

A client is answered, or refused as without the frontend. Its packets are never dropped, and no other server answers.

``run_appearing`` adds and deletes a sticky Service, adds and removes the NodePort of another Service, and changes the
node's address. ``run_first_syncs`` adds all Services to an empty kernel. Their clients use NodePorts and TCP, because
the node resets connections to other ports. A TCP client may miss an ICMP error: its kernel ignores the error while the
client still has its socket locked.

``run_first_endpoint`` adds and removes all endpoints of a Service. Its clients use an external IP and UDP.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from tests.support.lab.clients import NONE, Connection
from tests.support.lab.responder_process import ResponderProcess
from tests.support.lab.topology import Lab
from tests.support.packets import slow_chain
from tests.support.packets.churn import ALL_BACKENDS, PODS, TARGET_PORTS, slices_between
from tests.support.packets.frontends import Frontend, frontends
from tests.support.packets.in_flight import (
    CLIENT_HOSTS,
    CLUSTER_POLICY,
    SHORT_DELAY_RULES,
    STICKY_LOCAL,
    InFlightResult,
    connect_during,
)
from tests.support.packets.in_process_node import InProcessNode
from tests.support.packets.programmed import service, tcp_and_udp
from tests.support.scenario import DEFAULT_NODE

REFUSED = "ConnectionRefusedError"
BOTH = frozenset((CLUSTER_POLICY.name, STICKY_LOCAL.name))
OTHER_ADDRESS = {**DEFAULT_NODE, "status": {"addresses": [{"type": "InternalIP", "address": "$node.pods"}]}}

ALL_ICMP_ERRORS = {"net.ipv4.icmp_ratelimit": 0, "net.ipv6.icmp.ratelimit": 0}
"""A UDP client whose packet is rejected without an ICMP error waits for an answer."""


class Served(NamedTuple):
    """The Services whose NodePorts are served after a change, which begins and ends at these times."""

    begun: float
    ended: float
    services: Collection[str]


def run_appearing(lab: Lab, folder: Path, seed: int, times: int) -> InFlightResult:
    """Remove and add NodePorts in three ways, ``times`` times each."""
    without_node_port = service(CLUSTER_POLICY.name, CLUSTER_POLICY.number, *tcp_and_udp("http", 80))

    def change_all(node: InProcessNode) -> Iterator[Collection[str]]:
        for _ in range(times):
            node.apply([], deleted=[STICKY_LOCAL.name])
            yield [CLUSTER_POLICY.name]
            node.apply([STICKY_LOCAL.manifest()])
            yield BOTH
            node.apply([without_node_port])
            yield [STICKY_LOCAL.name]
            node.apply([CLUSTER_POLICY.manifest()])
            yield BOTH
            for node.node, served in ((OTHER_ADDRESS, ()), (DEFAULT_NODE, BOTH)):
                node.apply([])
                yield served

    with _node(lab) as node:
        slow_chain.slow_down(node.namespace, ("services",), SHORT_DELAY_RULES)
        return _run(lab, folder, seed, _is_node_port, change_all(node))


def run_first_syncs(lab: Lab, folder: Path, seed: int, times: int) -> InFlightResult:
    """Delete the tables, and sync for the first time while clients connect, ``times`` times.

    No client connects while the tables are deleted: a packet could be translated, but not masqueraded.
    """

    def sync_first(node: InProcessNode) -> Iterator[Collection[str]]:
        node.start_again()
        yield BOTH

    results = []
    with _node(lab) as node:
        for number in range(times):
            node.delete_tables()
            results.append(_run(lab, folder, seed + number, _is_node_port, sync_first(node), before=()))
    return InFlightResult(
        sum(result.connections for result in results),
        sum(result.during_commit for result in results),
        [lost for result in results for lost in result.lost],
    )


def run_first_endpoint(lab: Lab, folder: Path, seed: int, times: int, rules: int = SHORT_DELAY_RULES) -> InFlightResult:
    """Remove and add all endpoints of a Service, ``times`` times, while packets wait for the check for endpoints."""

    def change_all(node: InProcessNode) -> Iterator[Collection[str]]:
        for _ in range(times):
            node.apply(list(slices_between(CLUSTER_POLICY.name, ALL_BACKENDS, ())))
            yield [STICKY_LOCAL.name]
            node.apply(list(slices_between(CLUSTER_POLICY.name, (), ALL_BACKENDS)))
            yield BOTH

    with _node(lab) as node:
        node.namespace.sysctls(ALL_ICMP_ERRORS)
        slow_chain.slow_down(node.namespace, ("service-endpoints-check",), rules)
        return _run(lab, folder, seed, _is_external, change_all(node))


def _is_node_port(frontend: Frontend) -> bool:
    return frontend.service.name in BOTH and frontend.address_kind == "node" and frontend.protocol == "tcp"


def _is_external(frontend: Frontend) -> bool:
    return frontend.service is CLUSTER_POLICY and frontend.address_kind == "external" and frontend.protocol == "udp"


@contextmanager
def _node(lab: Lab) -> Iterator[InProcessNode]:
    slices = [item for added in (CLUSTER_POLICY, STICKY_LOCAL) for item in slices_between(added.name, (), ALL_BACKENDS)]
    with ResponderProcess(map(lab.host, PODS), TARGET_PORTS), InProcessNode(lab) as node:
        node.apply([CLUSTER_POLICY.manifest(), STICKY_LOCAL.manifest(), *slices])
        yield node


def _run(
    lab: Lab,
    folder: Path,
    seed: int,
    is_dialled: Callable[[Frontend], bool],
    changes: Iterator[Collection[str]],
    *,
    before: Collection[str] = BOTH,
) -> InFlightResult:
    """Connect while each of ``changes`` makes a change, and yields the Services that are served after it.

    ``before`` are those that are served before the first change.
    """
    client_frontends = {name: list(filter(is_dialled, frontends(name))) for name in CLIENT_HOSTS}

    def sync_all() -> list[Served]:
        begun = time.monotonic()
        states = [Served(0.0, begun, before)]
        states.extend(Served(begun, begun := time.monotonic(), served) for served in changes)
        return states

    connections, states = connect_during(lab, folder, seed, client_frontends, sync_all)
    during = sum(
        any(connection.started <= state.ended and state.begun <= connection.ended for state in states[1:])
        for _, connection in connections
    )
    return InFlightResult(len(connections), during, list(_faults(connections, states)))


def _faults(connections: Iterable[tuple[Frontend, Connection]], states: Sequence[Served]) -> Iterator[str]:
    """Yield the connections with another result than in any state that was in force during the connection."""
    last = Served(float("inf"), float("inf"), ())
    for frontend, connection in connections:
        expected = {
            NONE if frontend.service.name in state.services else REFUSED
            for state, following in pairwise((*states, last))
            if state.begun <= connection.ended and connection.started <= following.ended
        }
        is_expected = connection.error in expected and connection.server in {*PODS, NONE}
        if not is_expected or connection.retransmissions:
            yield f"{frontend}: {connection}"
