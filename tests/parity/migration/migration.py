"""Migrations of one node: the commands of an operator in their order, and what the clients see at each of them."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, Self

from tests.cluster.cluster import Cluster
from tests.cluster.kube_proxy import Mode
from tests.cluster.service_account import ServiceAccount
from tests.parity.marker import Marker
from tests.parity.migration.endpoints import Endpoints
from tests.parity.migration.established import EstablishedConnection, EstablishedConnections
from tests.parity.migration.health_watch import HealthWatch
from tests.parity.migration.phases import Phase, PhaseResult, check_phases
from tests.parity.migration.services import CHANGED, all_frontends, target
from tests.parity.nodes import API_PORT, KnftNode, KubeProxyNode, ParityNode
from tests.parity.random_cluster import Settings
from tests.parity.relay import Relay
from tests.support.families import VERSIONS
from tests.support.knft_command import KNFT
from tests.support.lab.clients import ClientProcesses
from tests.support.lab.responder_process import ResponderProcess
from tests.support.lab.topology import Lab
from tests.support.packets.churn import PODS, TARGET_PORTS
from tests.support.packets.many_clients import add_client_addresses
from tests.support.waiting import wait_until

ORDERS = ("stop first", "start first")
"""Whether the old proxy is stopped before the new one is started, or afterwards."""
WRONG_ORDER = "clean up first"
"""The old proxy's rules are removed before the new one is started: connections are lost."""
_CLEAN_UP_AND_START = "clean up (then start)"
_VERBS = {
    "stop first": ("stop", "start", "clean up"),
    "start first": ("start", "stop", "clean up"),
    WRONG_ORDER: ("stop", _CLEAN_UP_AND_START),
}
_ENDLESS = 10**8
_PAUSE = 0.002
_SEED = 1


class Step(NamedTuple):
    """One command of a migration, and what the clients have seen during and after it."""

    migration: str
    """Both proxies and the order, such as "kube-proxy to knft, stop first"."""
    phase: Phase
    established: int
    faults: list[str]
    """Faults of established connections."""
    failing_health: dict[str, float]


class Node:
    """A node that one or two proxies run on, with its lab, servers and clients; a context manager."""

    def __init__(self, cluster: Cluster, account: ServiceAccount, mode: Mode, folder: Path) -> None:
        """Take the mode of kube-proxy, and a folder for logs and records."""
        self._cluster, self._folder = cluster, folder
        self._lab = Lab(local_pods=4, remote_pods=8)
        self.kube_proxy, self.knft = KubeProxyNode(mode, self._lab), KnftNode(account, self._lab)
        self._marker = Marker(cluster.api)
        self._endpoints = Endpoints(cluster.api, self._marker)
        self._running: list[ParityNode] = []
        self._is_knft_loaded = False
        self._starts = 0
        self._established = EstablishedConnections()
        self.steps: list[Step] = []
        self._open = ExitStack()

    def __enter__(self) -> Self:
        """Build the lab, start kube-proxy and then all clients."""
        with ExitStack() as opened:
            lab = opened.enter_context(self._lab)
            add_client_addresses(lab)
            # Client processes bind to all ports below; the proxies' connections to the API server must have others.
            self.knft.namespace.sysctl("net.ipv4.ip_local_port_range", "60000 65535")
            opened.enter_context(Relay([self.knft.namespace], self._cluster.namespace, API_PORT))
            opened.enter_context(ResponderProcess(map(lab.host, PODS), TARGET_PORTS))
            opened.callback(self._kill)
            self.start(self.kube_proxy)
            self._frontends = {lab.host(client): seen for client, seen in all_frontends().items()}
            plans = {host: [target(frontend) for frontend in seen] for host, seen in self._frontends.items()}
            self._clients = ClientProcesses(plans, self._folder, _ENDLESS, _SEED, pause=_PAUSE)
            opened.enter_context(self._clients)
            self._clients.wait_for_connections()
            opened.enter_context(self._established)
            self._health = opened.enter_context(HealthWatch(lab.host("outside").namespace))
            self.connect()
            self.wait_until_healthy()
            self.step(f"{self.kube_proxy.name} alone", "nothing", lambda: None)
            self._open = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """End all processes, and remove the lab."""
        self._open.close()

    def _kill(self) -> None:
        for proxy in self._running:
            proxy.proxy.close()

    def start(self, proxy: ParityNode) -> None:
        """Start a proxy, and wait until its rules are loaded."""
        self._starts += 1
        folder = self._folder / f"start-{self._starts}"
        folder.mkdir()
        proxy.start(self._cluster, Settings(), folder)
        self._running.append(proxy)
        self._wait_for_rules()
        self._is_knft_loaded |= proxy is self.knft

    def stop(self, proxy: ParityNode) -> None:
        """Stop a proxy as the kubelet does; its rules stay."""
        self._running.remove(proxy)
        proxy.proxy.stop()

    def clean_up(self, proxy: ParityNode) -> None:
        """Remove the rules of a stopped proxy with knft."""
        options = ("--kube-proxy", "all") if proxy is self.kube_proxy else ()
        self.knft.namespace.run([*KNFT, "cleanup", *options])
        self._is_knft_loaded &= proxy is not self.knft

    def clean_up_with_kube_proxy(self) -> None:
        """Remove the rules of kube-proxy with its own command."""
        # Its status is 1 on a kernel without IPVS, whose rules it looks for last.
        self.knft.namespace.run([self._cluster.programs.path("kube-proxy"), "--cleanup"], check=False)
        left = [self.kube_proxy.listing(version) for version in VERSIONS]
        assert not any("KUBE-SVC" in listing or "chain" in listing for listing in left), left

    def connect(self) -> None:
        """Establish one more connection to each frontend whose endpoints stay."""
        self._established.add(
            EstablishedConnection(host, frontend)
            for host, seen in self._frontends.items()
            for frontend in seen
            if frontend.service.name != CHANGED
        )

    def wait_until_healthy(self) -> None:
        """Wait until the node's health checks succeed: a proxy retries to listen at ports that the other one had."""
        wait_until(lambda: self._health.are_healthy, "the node's health checks fail", self._check, interval=0.05)

    def step(self, migration: str, name: str, command: Callable[[], object]) -> None:
        """Run a command, replace the endpoints of one Service, and wait until all clients have used the node."""
        self._health.take_failing()
        started = time.monotonic()
        command()
        self._record_pool()
        done = time.monotonic()
        if not self._endpoints.is_pending:
            self._endpoints.replace()
            self._wait_for_rules()
            self._record_pool()
        self._clients.wait_for_more()
        self._established.wait_for_round()
        phase = Phase(name, started, done, time.monotonic())
        count, faults = len(self._established), self._established.take_faults()
        self.steps.append(Step(migration, phase, count, faults, self._health.take_failing()))

    def _record_pool(self) -> None:
        """knft's rules come before kube-proxy's: if they are loaded, only a running knft changes what clients see."""
        deciding = self.knft if self._is_knft_loaded else self.kube_proxy
        if deciding in self._running:
            self._endpoints.in_force()

    def _wait_for_rules(self) -> None:
        for proxy in self._running:
            wait_until(
                lambda proxy=proxy: proxy.has(self._marker),  # type: ignore[misc]
                f"{proxy.name} does not program the cluster",
                self._check,
                interval=0.05,
            )

    def _check(self) -> None:
        for proxy in self._running:
            proxy.proxy.check()

    def results(self) -> list[PhaseResult]:
        """Return the new connections of each step, after the clients have ended."""
        connections = (
            (seen[connection.target], connection)
            for host, seen in self._frontends.items()
            for connection in self._clients.connections(host)
        )
        return check_phases([step.phase for step in self.steps], self._endpoints.timelines, connections)


def migrate(node: Node, order: str, *, with_kube_proxy: bool = False) -> None:
    """Change from kube-proxy to knft and back; ``with_kube_proxy`` uses its own command to remove its rules."""
    for old, new in ((node.kube_proxy, node.knft), (node.knft, node.kube_proxy)):
        commands = _commands(node, old, new, with_kube_proxy=with_kube_proxy)
        for verb in _VERBS[order]:
            name = f"{verb} {_short_name(new if verb == 'start' else old)}"
            node.step(f"{old.name} to {new.name}, {order}", name, commands[verb])
        node.wait_until_healthy()
        node.connect()


def _commands(
    node: Node, old: ParityNode, new: ParityNode, *, with_kube_proxy: bool
) -> dict[str, Callable[[], object]]:
    def start() -> None:
        node.start(new)

    def clean_up() -> None:
        if with_kube_proxy and old is node.kube_proxy:
            node.clean_up_with_kube_proxy()
        else:
            node.clean_up(old)

    def clean_up_and_start() -> None:
        # As one command: without a proxy, each client would wait a minute for each answer.
        clean_up()
        start()

    return {
        "stop": lambda: node.stop(old),
        "start": start,
        "clean up": clean_up,
        _CLEAN_UP_AND_START: clean_up_and_start,
    }


def _short_name(proxy: ParityNode) -> str:
    return proxy.name.partition(" ")[0]
