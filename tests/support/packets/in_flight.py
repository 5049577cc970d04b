"""Sends packets that are between two rules at a commit. ``slow_chain`` delays packets, so that many of them are.

``run_new_chains`` tests packets with a verdict for a chain that is new. Each sync gives a Service with policy Local new
sizes of its two pools, and so a new chain.

``run_scaling`` tests packets that have a verdict for a pool of many endpoints when the pool shrinks to one endpoint.

``run_hairpin`` tests packets to their own client, which is removed as an endpoint before they are masqueraded.

``run_last_local_endpoint`` tests packets of a pod to a Service with policy Local whose last local endpoint is removed.

``run_layout_changes`` tests packets that have a verdict for a pool when their Service becomes wide.

``run_affinity_toggle`` tests packets that enter before their Service becomes sticky, or while the endpoints of a sticky
Service change.
"""

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest

from tests.support.lab.clients import NONE, ClientProcesses, Connection
from tests.support.lab.responder_process import ResponderProcess
from tests.support.lab.topology import Lab
from tests.support.packets import slow_chain
from tests.support.packets.churn import (
    ALL_BACKENDS,
    LOCAL,
    LOCAL_BACKENDS,
    PODS,
    SERVICES,
    TARGET_PORTS,
    ChurningService,
    Pool,
    slices_between,
)
from tests.support.packets.frontends import ADDRESS_KINDS, Frontend, frontends
from tests.support.packets.in_process_node import InProcessNode
from tests.support.packets.many_clients import STICKY, sticky_for
from tests.support.packets.programmed import service, tcp_and_udp

EXTERNAL_LOCAL = next(kind for kind in SERVICES if kind.name == "external-local")
CLUSTER_POLICY = next(kind for kind in SERVICES if kind.name == "cluster-policy")
STICKY_LOCAL = next(kind for kind in SERVICES if kind.name == "sticky-external-local")
CLIENT_HOSTS = ("outside", "local-4")
SIZES = [(cluster, local) for cluster in range(2, 25) for local in range(1, min(cluster, len(LOCAL_BACKENDS)) + 1)]
LARGE_POOL = 20
POOLS = tuple(f"pool-{protocol}-{LARGE_POOL}" for protocol in ("tcp", "udp"))
ENDLESS = 10**8
SEEDS = range(7, 13)
Result = TypeVar("Result")
SHORT_DELAY_RULES = 20_000
"""Rules that take the CPU less time to load, and delay packets long enough."""
FEWER_RULES = 5_000
"""Rules that delay a packet by 50 microseconds: without them it takes a tenth of that."""


class InFlightResult(NamedTuple):
    """The number of connections, the number of those during a commit, and the lost ones."""

    connections: int
    during_commit: int
    lost: list[str]


def assert_none_lost(run: Callable[[int], InFlightResult], during_commit: int) -> None:
    """Call ``run`` with seeds until more than ``during_commit`` connections were open at a commit.

    Fewer would show nothing. Once is enough, unless the CPUs are so busy that clients connect less often.
    """
    found = 0
    for seed in SEEDS:
        result = run(seed)
        print(result)
        assert result.lost == []
        found += result.during_commit
        if found > during_commit:
            return
    pytest.fail(f"only {found} connections were open at a commit")


def run_new_chains(lab: Lab, folder: Path, seed: int) -> InFlightResult:
    """Create chains that verdicts lead to at once, until each pair of pool sizes was there."""
    client_frontends = {
        name: [frontend for frontend in frontends(name) if frontend.service is EXTERNAL_LOCAL] for name in CLIENT_HOSTS
    }
    pools = [_pool(1, 1), *(_pool(*sizes) for sizes in SIZES), _pool(1, 1)]
    with _node(lab, EXTERNAL_LOCAL, pools[0]) as node:
        slow_chain.slow_down(node.namespace, ("services",))
        return _run(lab, folder, seed, client_frontends, lambda: _sync_each(node, EXTERNAL_LOCAL, pools))


def run_scaling(lab: Lab, folder: Path, seed: int, times: int) -> InFlightResult:
    """Scale a Service from one endpoint to many and back, ``times`` times."""
    client_frontends = {
        name: [
            frontend
            for frontend in frontends(name)
            if frontend.service is CLUSTER_POLICY and frontend.address_kind == "cluster"
        ]
        for name in CLIENT_HOSTS
    }
    few, many = ALL_BACKENDS[:1], ALL_BACKENDS[:LARGE_POOL]
    with _node(lab, CLUSTER_POLICY, many) as node:
        slow_chain.slow_down(node.namespace, POOLS)
        return _run(lab, folder, seed, client_frontends, lambda: _sync_each(node, CLUSTER_POLICY, [many, few] * times))


def run_hairpin(lab: Lab, folder: Path, seed: int, times: int) -> InFlightResult:
    """Remove and add the endpoint that is also the client, ``times`` times."""
    client, other = LOCAL_BACKENDS[-1], LOCAL_BACKENDS[0]
    client_frontends = {
        client.pod: [frontend for frontend in frontends(client.pod) if frontend.service is CLUSTER_POLICY]
    }
    with _node(lab, CLUSTER_POLICY, (other,)) as node:
        slow_chain.slow_down(node.namespace, ("masquerading",), FEWER_RULES)
        return _run(
            lab,
            folder,
            seed,
            client_frontends,
            lambda: _sync_each(node, CLUSTER_POLICY, [(other,), (other, client)] * times),
        )


def run_last_local_endpoint(lab: Lab, folder: Path, seed: int, times: int) -> InFlightResult:
    """Remove and add the only local endpoint of a Service with policy Local, ``times`` times.

    The client is a pod, which policy Local does not restrict: it is always answered.
    """
    client_frontends = {
        CLIENT_HOSTS[1]: [each for each in frontends(CLIENT_HOSTS[1]) if each.service is EXTERNAL_LOCAL]
    }
    with _node(lab, EXTERNAL_LOCAL, _pool(3, 1)) as node:
        slow_chain.slow_down(node.namespace, ("services",), SHORT_DELAY_RULES)
        pools = [_pool(3, 0), _pool(3, 1)] * times
        return _run(lab, folder, seed, client_frontends, lambda: _sync_each(node, EXTERNAL_LOCAL, pools))


def run_affinity_toggle(lab: Lab, folder: Path, seed: int, times: int, *, cluster_ip_only: bool) -> InFlightResult:
    """Switch session affinity on and off, ``times`` times, with changes of endpoints in between.

    Each time has a new timeout, which needs new chains.
    """
    clients = CLIENT_HOSTS[1:] if cluster_ip_only else CLIENT_HOSTS
    address_kinds = ("cluster",) if cluster_ip_only else ADDRESS_KINDS
    client_frontends = {
        name: [
            frontend
            for frontend in frontends(name)
            if frontend.service is STICKY_LOCAL and frontend.address_kind in address_kinds
        ]
        for name in clients
    }
    without_affinity = STICKY_LOCAL._replace(spec=LOCAL)
    steps = []
    for timeout in range(10800, 10800 + times):
        sticky = STICKY_LOCAL._replace(spec=LOCAL | sticky_for(timeout))
        steps += [(sticky, _pool(8, 2)), (sticky, _pool(2, 1))]
        steps += [(without_affinity, _pool(2, 1)), (without_affinity, _pool(9, 4))]

    def sync_all(node: InProcessNode) -> Iterator[float]:
        for (_, before), (kind, after) in itertools.pairwise(steps):
            manifest = _cluster_ip_only(kind) if cluster_ip_only else kind.manifest()
            node.apply([manifest, *slices_between(kind.name, before, after)])
            yield time.monotonic()

    with _node(lab, *steps[0]) as node:
        slow_chain.slow_down(node.namespace, ("services",))
        return _run(lab, folder, seed, client_frontends, lambda: list(sync_all(node)))


def run_layout_changes(
    lab: Lab,
    folder: Path,
    seed: int,
    times: int,
    change_layout: Callable[[], None],
    *,
    slow_chains: Sequence[str] = POOLS,
) -> InFlightResult:
    """Call ``change_layout`` and remove or add an endpoint, ``times`` times.

    Packets are delayed in ``slow_chains``, by default between verdict and endpoint.
    """
    client_frontends = {
        name: [frontend for frontend in frontends(name) if frontend.service is CLUSTER_POLICY] for name in CLIENT_HOSTS
    }
    many = ALL_BACKENDS[:LARGE_POOL]

    def sync_all(node: InProcessNode) -> Iterator[float]:
        for before, after in itertools.pairwise([many, many[:-1]] * times):
            change_layout()
            node.apply(list(slices_between(CLUSTER_POLICY.name, before, after)))
            yield time.monotonic()

    with _node(lab, CLUSTER_POLICY, many) as node:
        slow_chain.slow_down(node.namespace, slow_chains)
        return _run(lab, folder, seed, client_frontends, lambda: list(sync_all(node)))


def _cluster_ip_only(churning: ChurningService) -> dict[str, Any]:
    affinity = {field: value for field, value in churning.spec.items() if field in STICKY}
    return service(churning.name, churning.number, *tcp_and_udp("http", 80), **affinity)


@contextmanager
def _node(lab: Lab, churning: ChurningService, pool: Pool) -> Iterator[InProcessNode]:
    with ResponderProcess(map(lab.host, PODS), TARGET_PORTS), InProcessNode(lab) as node:
        node.apply([churning.manifest(), *slices_between(churning.name, (), pool)])
        yield node


def _run(
    lab: Lab,
    folder: Path,
    seed: int,
    client_frontends: Mapping[str, Sequence[Frontend]],
    sync_all: Callable[[], list[float]],
) -> InFlightResult:
    """Connect while ``sync_all`` runs, which returns the times of its commits."""
    connections, commits = connect_during(lab, folder, seed, client_frontends, sync_all)
    lost = [
        f"{frontend}: {connection}"
        for frontend, connection in connections
        if connection.error != NONE or connection.retransmissions
    ]
    return InFlightResult(len(connections), count_during(connections, commits), lost)


def connect_during(
    lab: Lab,
    folder: Path,
    seed: int,
    client_frontends: Mapping[str, Sequence[Frontend]],
    sync_all: Callable[[], Result],
) -> tuple[list[tuple[Frontend, Connection]], Result]:
    """Connect while ``sync_all`` runs; return all connections, and its result."""
    targets = {
        lab.host(name): [frontend.target for frontend in frontends_] for name, frontends_ in client_frontends.items()
    }
    clients = ClientProcesses(targets, folder, ENDLESS, seed)
    with clients:
        clients.wait_for_connections()
        result = sync_all()
    connections = [
        (client_frontends[name][connection.target], connection)
        for name in client_frontends
        for connection in clients.connections(lab.host(name))
    ]
    return connections, result


def count_during(connections: Iterable[tuple[Frontend, Connection]], commits: Sequence[float]) -> int:
    """Return how many connections were open at the time of a commit."""
    return sum(
        any(connection.started < commit < connection.ended for commit in commits) for _, connection in connections
    )


def _sync_each(node: InProcessNode, churning: ChurningService, pools: Sequence[Pool]) -> list[float]:
    """Sync once for each pool; return the times of the commits."""
    commits = []
    for before, after in itertools.pairwise(pools):
        if before != after:
            node.apply(list(slices_between(churning.name, before, after)))
            commits.append(time.monotonic())
    return commits


def _pool(cluster: int, local: int) -> Pool:
    remote = [backend for backend in ALL_BACKENDS if not backend.is_local]
    return (*LOCAL_BACKENDS[:local], *remote[: cluster - local])
