"""The connections that the elements of sets count equal those that clients made (docs/design/service-counters.md)."""

import itertools
import socket
import struct
import sys
import threading
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, Self

import pytest
from msgspec import structs
from prometheus_client.parser import text_string_to_metric_families

import tests.support.kernel_harness
from knft.config import Config
from knft.families import Family
from knft.model.names import ServicePortName
from knft.serve.connection_totals import Connections
from knft.serve.service_counters import ServiceCounters
from knft.serve.timestamp import now
from knft.sync.report import SyncReport
from tests.support.kernel_harness import CONFIG
from tests.support.knft_command import knft, write_manifests
from tests.support.lab.links import flush_conntrack
from tests.support.lab.outcomes import Answered, Outcome, Protocol, Rejected, Silent
from tests.support.lab.plan import Version
from tests.support.lab.responders import Responders
from tests.support.lab.topology import Lab
from tests.support.lab.traffic import NO_ANSWER, dial, dial_many
from tests.support.packets.manifest_knft import ManifestKnft
from tests.support.packets.programmed import ProgrammedNode, endpoints, service, tcp_and_udp, with_load_balancer
from tests.support.scenario import VERSIONS, Scenario, address
from tests.support.waiting import TIMEOUT, wait_until

pytestmark = pytest.mark.kernel
COUNTED = structs.replace(CONFIG, service_counters=True)
PODS = ("local-1", "local-2", "remote-1")
PORT, NODE_PORT = 8080, 30400
CLIENTS = ("outside", "local-3", "node")
PROTOCOLS: tuple[Protocol, ...] = ("tcp", "udp")
DENIED = 0.05
"""How long to wait for an answer that does not come, in seconds: shorter than until a client sends again."""
CHANGES = 1000
RESTARTS = 0.05
"""The probability of a restart of knft after a change."""
RESET_PORT, SOURCE_PORT = 8081, 40000
SOURCE_PORTS = itertools.cycle(range(1024, 65536))
"""Ports in turn: those that the kernel chooses can have a conntrack entry, and such a connection may not be counted.
See docs/operations/metrics.md#service-connections."""

FREQUENT_READINGS = """
from knft.cli.main import main
from knft.serve import kernel_counters

kernel_counters.READ_SECONDS = 0.1
main()
"""
METRICS_ADDRESS = "127.0.0.1:10249"
FLAGS = ("--service-counters", "--metrics-bind-address", METRICS_ADDRESS)


class CountedNode(ProgrammedNode):
    """The node, with the observer that reads the counters, as in ``knft run``."""

    def __init__(self, lab: Lab, config: Config = COUNTED) -> None:
        super().__init__(lab, config)
        self.counters = ServiceCounters(now)

    def apply(self, objects: Sequence[dict[str, Any]]) -> dict[Family, SyncReport]:
        """Add or change objects, and sync."""
        reports = super().apply(objects)
        for family, report in reports.items():
            self.counters.sync_succeeded(report, self._harness.proxiers[family].state)
        return reports

    def restart(self, objects: Sequence[dict[str, Any]], config: Config | None = None) -> None:
        """Continue as a new process, which counts from what it finds in the kernel."""
        self._config = config or self._config
        self.counters = ServiceCounters(now)
        super().restart(objects)

    def read(self) -> dict[ServicePortName, Connections]:
        """Read the counters; return those of Service ports with connections."""
        with self.namespace.entered():
            self.counters.read()
        return {name: found for name, found in self.counters.by_service_port().items() if found != Connections()}

    def delete(self, name: str) -> None:
        """Delete a Service, and sync."""
        with self.namespace.entered():
            self._harness.delete("Service", name)
        self.apply([])


@pytest.fixture
def node(lab: Lab) -> Iterator[CountedNode]:
    with Responders() as servers, CountedNode(lab) as counted:
        for pod in PODS:
            for protocol in PROTOCOLS:
                servers.serve(lab.host(pod), PORT, protocol)
        yield counted


def _service(name: str, number: int, node_port: int = 0, **spec: Any) -> dict[str, Any]:
    plain = service(name, number, *tcp_and_udp("http", 80, node_port), externalIPs=[f"$external.{number}"], **spec)
    return with_load_balancer(plain, f"$external.{number + 50}")


def _name(service: str, protocol: Protocol) -> ServicePortName:
    return ServicePortName("default", service, f"http-{protocol}", "TCP" if protocol == "tcp" else "UDP")


class CountedConnections:
    """Connects clients to all frontends of a Service, and counts the connections.

    Each has a source port of its own: a second UDP connection from one port has the conntrack entry of the first.
    """

    def __init__(self, lab: Lab, service: str, number: int) -> None:
        self._lab, self._service = lab, service
        self._frontends = (
            (f"cluster.{number}", 80),
            (f"external.{number}", 80),
            (f"external.{number + 50}", 80),
            ("node", NODE_PORT),
        )
        self._source_ports = itertools.count(20000)
        self.made: Counter[ServicePortName] = Counter()
        self.rejected: Counter[ServicePortName] = Counter()

    def connect(self, expected: type[Outcome] | None = Answered, *, clients: Sequence[str] = CLIENTS) -> None:
        """Connect each client to each frontend once."""
        for version, protocol, client, (name, port) in itertools.product(VERSIONS, PROTOCOLS, clients, self._frontends):
            client_host, source_port = self._lab.host(client), next(self._source_ports)
            found = dial(client_host, address(name, version), port, protocol, source_port=source_port)
            assert expected is None or isinstance(found, expected), (client, name, protocol, found)
            self.made[_name(self._service, protocol)] += 1
            self.rejected[_name(self._service, protocol)] += isinstance(found, Rejected)

    def totals(self) -> dict[ServicePortName, Connections]:
        return {name: Connections(count, rejected=self.rejected[name]) for name, count in self.made.items()}


def test_connections_to_all_frontends_are_counted_once_over_scaling_and_restarts(node: CountedNode) -> None:
    dialled = CountedConnections(node.lab, "web", 90)
    node.apply([_service("web", 90, NODE_PORT), endpoints("web", "local-1", http=PORT)])
    assert node.read() == {}
    dialled.connect()
    assert node.read() == dialled.totals()
    node.apply([endpoints("web", *PODS, http=PORT)])
    dialled.connect()
    node.apply([_service("web", 90, NODE_PORT, sessionAffinity="ClientIP"), endpoints("web", "remote-1", http=PORT)])
    dialled.connect()
    assert node.read() == dialled.totals()
    dialled.connect()
    node.restart([endpoints("web", *PODS, http=PORT)])
    dialled.connect()
    assert node.read() == dialled.totals()
    by_frontend = node.counters.by_frontend()
    assert {connections.new for *_, connections in by_frontend} == {5 * len(CLIENTS)}
    assert sum(connections.new for *_, connections in by_frontend) == sum(dialled.made.values())


def test_connections_are_counted_once_although_knft_is_killed(lab: Lab, tmp_path: Path) -> None:
    """Those before the kill, those while no knft runs, and those of the next process, which has other endpoints."""
    dialled, expected = CountedConnections(lab, "web", 90), None
    with Responders() as servers, KilledKnft(lab, tmp_path) as killed:
        for pod, protocol in itertools.product(PODS, PROTOCOLS):
            servers.serve(lab.host(pod), PORT, protocol)
        for pods in (PODS[:1], (), PODS):
            killed.write([_service("web", 90, NODE_PORT), endpoints("web", *pods, http=PORT)])
            if expected is not None:
                dialled.connect(expected)
            expected = Answered if pods else Rejected
            with killed.running():
                dialled.connect(expected)
                killed.wait_until_counted("connections", dialled.made)
                killed.wait_until_counted("refused_connections", dialled.rejected)


class KilledKnft:
    """The node under test with ``knft run --service-counters``, a process that is killed; a context manager."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self._namespace, self._folder = lab.host("node").namespace, folder
        self._manifests = folder / "manifests"
        self._manifests.mkdir()

    def __enter__(self) -> Self:
        flush_conntrack(self._namespace)
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the tables."""
        knft(self._namespace, "cleanup")

    def write(self, objects: list[dict[str, Any]]) -> None:
        write_manifests(self._manifests, Scenario("", objects, ()).manifests())

    @contextmanager
    def running(self) -> Iterator[None]:
        """Start knft, and kill it at the end of the block."""
        program = (sys.executable, "-P", "-c", FREQUENT_READINGS)
        process = ManifestKnft(self._namespace, self._manifests, self._folder / "log", program, flags=FLAGS)
        try:
            process.wait_for_full_syncs()
            yield
        finally:
            process.kill()

    def wait_until_counted(self, what: str, expected: Counter[ServicePortName]) -> None:
        """Wait until a metric has as many connections as expected, and compare them by the names of the ports."""
        wait_until(lambda: self._scrape(what).total() >= expected.total(), f"not counted: {expected}")
        assert self._scrape(what) == Counter({name.port: count for name, count in expected.items()})

    def _scrape(self, what: str) -> Counter[str]:
        try:
            with (
                self._namespace.entered(),
                urllib.request.urlopen(f"http://{METRICS_ADDRESS}/metrics", timeout=TIMEOUT) as response,
            ):
                text = response.read().decode()
        except OSError:
            return Counter()
        samples = [sample for metric in text_string_to_metric_families(text) for sample in metric.samples]
        name = f"knft_service_{what}_total"
        return Counter({each.labels["port"]: int(each.value) for each in samples if each.name == name})


def test_rejected_and_dropped_connections_are_counted(node: CountedNode) -> None:
    dialled = CountedConnections(node.lab, "web", 90)
    node.apply([_service("web", 90, NODE_PORT), endpoints("web", http=PORT)])
    dialled.connect(Rejected)
    count = dialled.rejected[_name("web", "tcp")]
    assert node.read() == dialled.totals()
    # With policy Local and no local endpoint, clients from outside the cluster are dropped, and pods are served.
    node.apply([_service("web", 90, NODE_PORT, externalTrafficPolicy="Local"), endpoints("web", "remote-1", http=PORT)])
    dialled.connect(clients=("local-3", "node"))
    dropped = 0
    for version, protocol, (name, port) in itertools.product(
        VERSIONS, PROTOCOLS, (("external.90", 80), ("external.140", 80), ("node", NODE_PORT))
    ):
        found = dial(node.lab.host("outside"), address(name, version), port, protocol, timeout=DENIED)
        assert isinstance(found, Silent)
        dropped += 1
    total = dialled.made[_name("web", "tcp")] + dropped // 2
    expected = Connections(total, rejected=count, dropped=dropped // 2)
    assert node.read() == {_name("web", protocol): expected for protocol in PROTOCOLS}
    node.restart([])
    assert node.read() == {_name("web", protocol): expected for protocol in PROTOCOLS}


@pytest.mark.parametrize("vips", [1, 8], ids=["set", "chain"])
def test_connections_outside_the_source_ranges_are_dropped_and_counted(node: CountedNode, vips: int) -> None:
    """With many load balancer IPs, a chain of the Service port has the source ranges."""
    addresses = [f"$external.{110 + number}" for number in range(vips)]
    ranges = ["$outside/32" if number == 0 else f"198.51.100.{number}/32" for number in range(8)]
    plain = service("web", 90, *tcp_and_udp("http", 80), loadBalancerSourceRanges=ranges)
    node.apply([with_load_balancer(plain, *addresses), endpoints("web", *PODS, http=PORT)])
    for version, protocol in itertools.product(VERSIONS, PROTOCOLS):
        outside, pod = node.lab.host("outside"), node.lab.host("local-3")
        assert isinstance(dial(outside, address("external.110", version), 80, protocol), Answered) or version == 6
        assert isinstance(dial(pod, address("external.110", version), 80, protocol, timeout=DENIED), Silent)
    assert {found.dropped for found in node.read().values()} == {2}
    assert {found.new for found in node.read().values()} == {4}


@pytest.mark.parametrize(("reset_by", "second_pod", "counted"), [("client", "local-2", 2), ("server", "local-1", 1)])
def test_a_connection_is_not_counted_if_the_kernel_keeps_the_entry_of_a_reset_one(
    node: CountedNode, reset_by: str, second_pod: str, counted: int
) -> None:
    """The client connects twice from one port. If the server reset the first connection, the entry is not replaced."""
    for version in VERSIONS:
        for endpoint, pod in (("local-1", "local-1"), ("local-2", second_pod)):
            node.apply([_service("web", 90), endpoints("web", endpoint, http=RESET_PORT)])
            _connect_and_reset(node.lab, pod, version, reset_by)
    assert node.read() == {_name("web", "tcp"): Connections(counted * len(VERSIONS))}


def _connect_and_reset(lab: Lab, pod: str, version: Version, reset_by: str) -> None:
    """Connect from ``SOURCE_PORT`` to a server that listens on the pod; return when the reset was received."""
    family = socket.AF_INET if version == 4 else socket.AF_INET6
    with lab.host(pod).namespace.entered():
        listening = socket.create_server((lab.host(pod).address(version), RESET_PORT), family=family)
    with lab.host("outside").namespace.entered():
        client = socket.socket(family)
    with listening, client:
        listening.settimeout(TIMEOUT)
        client.settimeout(TIMEOUT)
        client.bind(("", SOURCE_PORT))
        client.connect((address("cluster.90", version), 80))
        server, _ = listening.accept()
        with server:
            server.settimeout(TIMEOUT)
            resetting, other = (server, client) if reset_by == "server" else (client, server)
            resetting.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            resetting.close()
            with pytest.raises(ConnectionResetError):
                other.recv(1)


class Client:
    """A thread that connects from outside until the block ends."""

    def __init__(self, lab: Lab, *targets: str) -> None:
        self._lab, self._targets = lab, targets
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._connect)
        self.servers: Counter[str] = Counter()

    def _connect(self) -> None:
        while not self._stop.is_set():
            for target in self._targets:
                self.servers += dial_many(self._lab.host("outside"), target, 80, "tcp", 5, source_ports=SOURCE_PORTS)

    def __enter__(self) -> Counter[str]:
        self._thread.start()
        return self.servers

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def test_counters_are_right_after_a_thousand_changes(node: CountedNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tests.support.kernel_harness, "check_schema", lambda _document: None)
    node.apply([_service("web", 90), endpoints("web", "local-1", http=PORT)])
    pools, rng = itertools.cycle([PODS, PODS[:1], PODS[1:], PODS[:2]]), Random(1)  # noqa: S311 - the same in each run
    seen, changes, others = [0], 0, list(range(20, 40))
    with Client(node.lab, *(address("cluster.90", version) for version in VERSIONS)) as servers:
        while changes < CHANGES:
            rng.shuffle(others)
            node.delete(f"other-{others[0]}")
            items = [_service(f"other-{number}", number) for number in others[1:6]]
            items += [endpoints(f"other-{number}", *next(pools), http=PORT) for number in others[4:9]]
            node.apply([*items, endpoints("web", *next(pools), http=PORT)])
            changes += len(items) + 2
            if rng.random() < RESTARTS:
                node.restart([])
            seen.append(sum(found.new for found in node.read().values()))
    assert servers[NO_ANSWER] == 0
    assert seen == sorted(seen)
    assert node.read() == {_name("web", "tcp"): Connections(servers.total())}


def test_counting_can_be_turned_on_and_off_while_clients_connect(node: CountedNode) -> None:
    node.apply([_service("web", 90), endpoints("web", *PODS, http=PORT), _service("empty", 91)])
    with Client(node.lab, *(address("cluster.90", version) for version in VERSIONS)) as servers:
        for _ in range(4):
            node.restart([], CONFIG)
            assert "counter" not in node.namespace.run(["nft", "list", "ruleset"]).stdout
            node.restart([], COUNTED)
    assert servers[NO_ANSWER] == 0
    assert servers.total() > 0
    before = node.read().get(_name("web", "tcp"), Connections()).new
    dial_many(node.lab.host("outside"), address("cluster.90", 4), 80, "tcp", 3, source_ports=SOURCE_PORTS)
    assert node.read()[_name("web", "tcp")].new == before + 3
