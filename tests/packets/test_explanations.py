"""Every sentence of ``knft explain`` agrees with the outcome of real packets.

``explained.yaml`` has the Services, ``CASES`` the questions. For each question, packets go to every frontend of the
explanation, from every kind of client that it names. ``explaining_tests`` has the tests of the other sentences.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec import structs

from knft.cli.commands import cli
from knft.cli.manifests import read_manifests
from knft.cli.options import config_from_options
from knft.comparison.entries import KernelEntries, frontend_connections
from knft.comparison.explained import kernel_rules, kernel_source, object_source
from knft.comparison.live import read_live_knft
from knft.explain.affinity import Client, with_affinity
from knft.explain.connections import with_connections
from knft.explain.explain import explain
from knft.explain.explanation import ExplainedPort, Explanation
from knft.explain.frontend_index import index_of_rules
from knft.explain.outcomes import ClientOutcome
from knft.explain.query import AddressQuery, parse_query
from knft.explain.sentences import Sentence, Statement, state
from knft.explain.sources import KernelSource, ObjectSource
from knft.families import FAMILY_OF_VERSION
from knft.model.endpoint import endpoint_key
from knft.render.names import CLIENTS, TABLE
from tests.packets.connected_clients import Clients
from tests.packets.explained_cases import CASES, FIRST_LINES_OF_RULES, Case, Direct, written
from tests.packets.explaining_tests import OTHER_TESTS, named_sentences
from tests.support.explain_statements import checked_statements
from tests.support.families import address, in_family
from tests.support.knft_command import NODE_FLAG
from tests.support.lab import plan
from tests.support.lab.links import flush_conntrack
from tests.support.lab.outcomes import Answered, Rejected, Silent
from tests.support.lab.topology import Lab
from tests.support.packets.captured import Captured
from tests.support.packets.modes import Nftables
from tests.support.packets.scenario_runner import MIN_ATTEMPTS, ScenarioRunner, scenario_runner
from tests.support.scenario import VERSIONS, Scenario, read_file
from tests.support.used_endpoints import check_used_endpoints

pytestmark = pytest.mark.kernel

SCENARIO, WITHOUT_NODE_PORTS = read_file(Path(__file__).with_name("explained.yaml"))


S = Sentence
_LARGE_PORTS, _LARGE_ADDRESSES, _ENDPOINTS = 500, 101, 151


def test_every_sentence_has_packets() -> None:
    in_other_tests = {sentence for sentences in OTHER_TESTS.values() for sentence in sentences}
    assert {sentence for case in CASES for sentence in case.sentences} | in_other_tests == set(Sentence)


@pytest.mark.parametrize("test", OTHER_TESTS)
def test_other_test_names_its_sentences(test: str) -> None:
    assert set(OTHER_TESTS[test]) <= named_sentences(test)


def _large_objects() -> list[dict[str, Any]]:
    """Return a Service with too many frontends, and one with too many endpoints."""
    ports = [{"name": f"p{number}", "port": 80 + number} for number in range(_LARGE_PORTS)]
    external = [f"198.18.0.{number}" for number in range(1, _LARGE_ADDRESSES)]
    names = [{"name": "http", "port": 8080}, *({"name": f"p{number}", "port": 8080} for number in range(999))]
    return [
        _service("wide", clusterIP="$cluster.62", externalIPs=external, ports=ports),
        _service("crowded", clusterIP="$cluster.63", ports=[{"name": "http", "port": 80}]),
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": "crowded", "labels": {"kubernetes.io/service-name": "crowded"}},
            "ports": names,
            "endpoints": [{"addresses": ["$local-1"], "nodeName": "node-1"}] * _ENDPOINTS,
        },
    ]


def _service(name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


WHOLE = Scenario(SCENARIO.title, [*SCENARIO.objects, *_large_objects()], ())


REASONS = (
    "no endpoints",
    "no local endpoints, externalTrafficPolicy Local",
    "no local endpoints, internalTrafficPolicy Local",
    "no Service has this cluster IP",
    "the cluster IP has no such port",
    "the source is not in loadBalancerSourceRanges",
    "externalTrafficPolicy Cluster",
    "from outside the pod range",
    "from the node itself, to which externalTrafficPolicy Local does not apply",
)
"""Why knft's rules reject, drop or masquerade packets, with the default flags. Packets in state INVALID have their own
test (``test_invalid_packets.py``), and so do endpoints that connect to themselves (``Clients.reaches_itself``)."""

WITHOUT_CONNECTIONS = frozenset({"default/serve"})
"""The questions without a frontend and without an address."""


class Explained(NamedTuple):
    """The node with a scenario's rules, the sources of explanations, and clients in the lab."""

    runner: ScenarioRunner
    captured: Captured
    objects: ObjectSource
    kernel: KernelSource
    clients: Clients

    def explain(self, what: str, version: plan.Version) -> Explanation:
        return explain(parse_query(in_family(what, version)), self.objects)


class Node:
    """The node under test with the rules of one scenario at a time."""

    def __init__(self, runner: ScenarioRunner) -> None:
        self._runner = runner
        self._loaded: tuple[Scenario, Explained] | None = None

    def load(self, scenario: Scenario) -> Explained:
        if self._loaded is None or self._loaded[0] is not scenario:
            self._runner.apply(scenario)
            captured = self._runner.mode.capture(self._runner.namespace)
            objects = _object_source(self._runner.folder, scenario, captured)
            kernel = kernel_source(captured.rule_sets, captured.node_addresses)
            self._loaded = scenario, Explained(self._runner, captured, objects, kernel, Clients(self._runner.lab))
        return self._loaded[1]


@pytest.fixture(scope="module")
def node(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with scenario_runner(lab, tmp_path_factory.mktemp("explained"), Nftables()) as runner:
        yield Node(runner)


@pytest.fixture
def explained(node: Node) -> Explained:
    return node.load(WHOLE)


def _object_source(folder: Path, scenario: Scenario, captured: Captured, *more: str) -> ObjectSource:
    arguments = ["WHAT", "-f", str(folder), *NODE_FLAG, *scenario.arguments(), *more]
    options = cli.commands["explain"].make_context("explain", arguments).params
    changes = read_manifests((str(folder),), described=True)
    return object_source(changes, config_from_options(options), captured.node_addresses)


@pytest.mark.parametrize("version", VERSIONS)
def test_packets_agree_with_every_sentence(explained: Explained, version: plan.Version) -> None:
    for case in CASES:
        found = explained.explain(case.what, version)
        assert {each.kind for each in case.sentences} <= _kinds(found), (case.what, found)
        assert "; ".join(each.text for each in found.conclusion) == case.first_line(version)
        assert _uses(found, version) | _expected_uses(case, version) == _uses(found, version), case.what
        ports = [port for port in found.ports if port.family == FAMILY_OF_VERSION[version].value]
        sent = sum(_check_port(explained, port) for port in ports)
        target = parse_query(in_family(case.what, version))
        sent += explained.clients.check(
            found.outcomes, getattr(target, "address", ""), getattr(target, "port", 0), "TCP"
        )
        for packet in case.packets:
            _check_direct(explained, packet, version)
        assert sent or case.packets or case.what in WITHOUT_CONNECTIONS, case.what
    assert explained.clients.outcomes_without_client == set()
    assert {reason for reason in REASONS if not explained.clients.has_checked(reason)} == set()


CONFIGURATIONS = {
    "pods are not known": (("--cluster-cidr=",), {"any", "node"}, {"externalTrafficPolicy Cluster"}),
    "everything is masqueraded": (
        ("--masquerade-all",),
        {"any", "node"},
        {"externalTrafficPolicy Cluster", "--masquerade-all applies to all traffic to cluster IPs"},
    ),
    "pods have an interface": (
        ("--detect-local-mode=InterfaceNamePrefix", "--pod-interface-name-prefix=cn"),
        {"outside", "pod", "node"},
        {"externalTrafficPolicy Cluster", "not from a pod's interface"},
    ),
}
"""Flags, the kinds of clients that an explanation then has, and reasons for masqueraded connections."""


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_clients_and_reasons_of_other_configurations(node: Node, name: str, version: plan.Version) -> None:
    flags, kinds, reasons = CONFIGURATIONS[name]
    explained = node.load(structs.replace(WITHOUT_NODE_PORTS, title=name, flags=flags))
    (port,) = (
        each for each in explained.explain("served", version).ports if each.family == FAMILY_OF_VERSION[version].value
    )
    assert _check_port(explained, port)
    outcomes = [each for frontend in port.frontends for each in frontend.outcomes]
    assert {each.client for each in outcomes} == kinds
    assert {reason for reason in reasons if not explained.clients.has_checked(reason)} == set()


def _uses(found: Explanation, version: plan.Version) -> dict[str, tuple[str, ...]]:
    """Return the reasons for each endpoint of a family, by its address: one if all are the same."""
    uses = {
        each.endpoint.rpartition(":")[0].strip("[]"): tuple(use.reason.text for use in each.uses)
        for port in found.ports
        if port.family == FAMILY_OF_VERSION[version].value
        for each in port.endpoints
    }
    return {where: reasons if len(set(reasons)) > 1 else reasons[:1] for where, reasons in uses.items()}


def _expected_uses(case: Case, version: plan.Version) -> dict[str, tuple[str, ...]]:
    return {in_family(host, version): reasons for host, reasons in case.uses.items()}


def _kinds(found: Explanation) -> set[str]:
    """Return the sentences that an explanation has, and check that each is one."""
    return {each.kind for each in checked_statements(found)}


def _check_port(explained: Explained, port: ExplainedPort) -> int:
    """Send packets to the frontends of a Service port; return for how many outcomes."""
    sent = 0
    owned = [frontend for frontend in port.frontends if frontend.is_owned]
    for frontend in owned:
        assert frontend.outcomes, frontend.what
        sent += explained.clients.check(frontend.outcomes, frontend.at, frontend.port, port.protocol)
        if not port.other_endpoints:
            check_used_endpoints(port, frontend)
    notes = {note.kind for note in port.notes}
    assert notes <= {Sentence.HAIRPIN.kind, Sentence.PODS_OF_THIS_NODE.kind}
    if Sentence.HAIRPIN.kind in notes and not (port.affinity_seconds or port.other_endpoints):
        assert any(explained.clients.reaches_itself(port, frontend) for frontend in owned)
    return sent


def _check_direct(explained: Explained, packet: Direct, version: plan.Version) -> None:
    where, _, port = in_family(packet.to, version).rpartition(":")
    target = where.removeprefix("[").removesuffix("]")
    found = explained.clients.dial(packet.client, target, int(port), silent=packet.outcome == "dropped")
    if isinstance(found, Answered):
        assert (found.server, found.source) == (packet.outcome, address(packet.client, version))
        return
    expected = {"dropped": Silent(), "rejected": Rejected("icmp"), "reset": Rejected("reset")}
    assert found == expected[packet.outcome], packet


def test_explanations_from_the_kernel_alone_have_the_same_outcomes(explained: Explained) -> None:
    """Packets were sent for the outcomes of frontends in the test above; here for those of other destinations."""
    kinds = set[str]()
    for case in CASES:
        for version in VERSIONS:
            query = parse_query(in_family(case.what, version))
            of_objects = explain(query, explained.objects)
            ports = {(port.port, port.protocol, port.family): port for port in of_objects.ports}
            found = explain(query, explained.kernel)
            kinds |= _kinds(found)
            in_rules = {key: port for key, port in ports.items() if _is_in_rules(port, case)}
            assert {(port.port, port.protocol, port.family) for port in found.ports} == in_rules.keys(), case.what
            for port in found.ports:
                other = in_rules[port.port, port.protocol, port.family]
                assert _outcomes(port) == _outcomes(other), case.what
                assert port.affinity_seconds == other.affinity_seconds
                assert port.conclusion == _kernel_conclusion(other), case.what
            if found.ports:
                _check_conclusion_of_ports(found, of_objects)
                continue
            line = FIRST_LINES_OF_RULES.get(case.what)
            expected = case.first_line(version) if line is None else written(line, version)
            assert "; ".join(each.text for each in found.conclusion) == expected
            assert of_objects.ports or found.outcomes == of_objects.outcomes, case.what
            if isinstance(query, AddressQuery):
                explained.clients.check(found.outcomes, query.address, query.port, query.protocol)
    stated = (
        *(S.KERNEL_NO_SERVICE, S.KERNEL_NO_SUCH_PORT, S.KERNEL_UNALLOCATED, S.KERNEL_NOT_A_FRONTEND),
        *(S.KERNEL_NODE_ADDRESS, S.KERNEL_NO_NODE_PORT, S.KERNEL_SERVED, S.KERNEL_UNSERVED),
    )
    assert {each.kind for each in stated} <= kinds


def _kernel_conclusion(of_objects: ExplainedPort) -> Statement:
    """Return what rules alone tell about a Service port, by the endpoints that packets reach."""
    outcomes = (outcome for each in _outcomes(of_objects).values() for outcome in each)
    endpoints = {endpoint for outcome in outcomes for endpoint in outcome.endpoints}
    if not of_objects.other_endpoints:
        assert endpoints == {each.endpoint for each in of_objects.endpoints if each.is_used}
    name, family = of_objects.port, of_objects.family
    if not endpoints:
        return state(S.KERNEL_UNSERVED, port=name, family=family)
    return state(S.KERNEL_SERVED, port=name, family=family, count=len(endpoints))


def _check_conclusion_of_ports(found: Explanation, of_objects: Explanation) -> None:
    """Check that rules alone have the conclusions of their Service ports, and no other statement than objects have."""
    about_ports = {S.KERNEL_SERVED.kind, S.KERNEL_UNSERVED.kind}
    kinds = {each.kind for each in found.conclusion}
    assert kinds - about_ports <= {each.kind for each in of_objects.conclusion}, found.what
    stated = {each for each in found.conclusion if each.kind in about_ports}
    conclusions = {port.conclusion for port in found.ports}
    if kinds & {S.ALL_SERVED.kind, S.SOME_UNSERVED.kind}:
        unserved = {each for each in conclusions if each.kind == S.KERNEL_UNSERVED.kind}
        assert stated <= unserved, found.what
        assert bool(stated) is bool(unserved) is (S.SOME_UNSERVED.kind in kinds), found.what
    else:
        assert stated == (set() if S.ENDPOINT.kind in kinds else conclusions), found.what
    seen, of_both = (
        [each for each in side.conclusion if each.kind == S.MASQUERADED.kind] for side in (found, of_objects)
    )
    assert seen == of_both, found.what


def _is_in_rules(port: ExplainedPort, case: Case) -> bool:
    """Tell whether rules have a Service port, and, if the question is about an endpoint, use that."""
    uses_it = Sentence.ENDPOINT not in case.sentences or any(each.is_used for each in port.endpoints)
    is_left_out = Sentence.TOO_MANY_ENDPOINTS in case.sentences
    return uses_it and not is_left_out and any(each.is_owned for each in port.frontends)


def _outcomes(port: ExplainedPort) -> dict[str, tuple[ClientOutcome, ...]]:
    return {frontend.what: frontend.outcomes for frontend in port.frontends if frontend.is_owned}


def test_unknown_service_has_no_frontend(explained: Explained) -> None:
    owners = [name for rules in explained.captured.rule_sets.values() for name in index_of_rules(rules).owners.values()]
    assert "serve" not in {name.name for name in owners}
    assert "served" in {name.name for name in owners}


def test_rules_of_the_kernel_are_compared_with_those_of_the_objects(explained: Explained, tmp_path: Path) -> None:
    """The kernel has another endpoint and another NodePort than the changed manifests; packets reach the kernel's."""
    captured = explained.captured
    rules = kernel_rules(captured.rule_sets, captured.node_addresses)
    what = "served"
    equal = explain(parse_query(what), explained.objects, rules)
    assert [each.kind for each in equal.kernel] == [S.KERNEL_EQUAL.kind]

    text = (explained.runner.folder / "objects.yaml").read_text()
    (tmp_path / "objects.yaml").write_text(text.replace("nodePort: 30020", "nodePort: 30021"))
    changed = _object_source(tmp_path, SCENARIO, captured)
    found = explain(parse_query(what), changed, rules)
    assert {each.kind for each in found.kernel} == {S.KERNEL_DIFFERENT.kind, S.KERNEL_EXTRA.kind}
    texts = " ".join(each.text for each in found.kernel)
    assert ":30021/tcp" in texts
    assert ":30020/tcp" in texts
    node = plan.NODE.lan.ipv4
    assert explained.clients.dial("outside", node, 30021) == Rejected("reset")
    assert isinstance(explained.clients.dial("outside", node, 30020), Answered)

    unallocated = explain(parse_query("10.96.0.99"), explained.objects, rules)
    assert [each.kind for each in unallocated.kernel] == [S.KERNEL_HAS_NONE.kind]
    assert explained.clients.dial("outside", "10.96.0.99", 80, silent=True) == Silent()


def _of_client(explained: Explained, what: str, client: str) -> Explanation:
    with explained.runner.namespace.entered():
        of_client = Client(FAMILY_OF_VERSION[6 if ":" in client else 4], client)
        found = with_affinity(
            explain(parse_query(what), explained.objects), lambda: explained.kernel.probes, KernelEntries(), of_client
        )
    assert checked_statements(found)
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_pinned_client_keeps_its_endpoint(explained: Explained, version: plan.Version) -> None:
    """Its first connection adds the entry; the endpoint that the explanation names answers all that follow."""
    name, client = "sticky:http", plan.SECOND_OUTSIDE.of(version)
    explained.runner.namespace.run(["nft", "flush", "set", FAMILY_OF_VERSION[version].nft, TABLE, CLIENTS])
    assert _of_client(explained, name, client).conclusion[0].kind == S.NOT_PINNED.kind
    servers = set()
    for _ in range(MIN_ATTEMPTS):
        answer = explained.clients.dial("outside", address("cluster.21", version), 80, source=client)
        assert isinstance(answer, Answered)
        servers.add(endpoint_key(answer.address, answer.port))
        found = _of_client(explained, name, client)
        (pinned,) = found.pinned
        assert found.conclusion[0].kind == S.PINNED.kind
        assert {pinned.endpoint} == servers
        assert 10_700 < pinned.seconds <= 10_800
    port = next(port for port in found.ports if port.family == FAMILY_OF_VERSION[version].value)
    assert {each.endpoint: each.clients for each in port.endpoints if each.clients} == {pinned.endpoint: 1}
    # A client without an entry, one of another family, and a Service without affinity.
    assert _of_client(explained, name, explained.runner.lab.host("outside").address(version)).pinned == ()
    other_family = _of_client(
        explained, address("cluster.21", version), plan.SECOND_OUTSIDE.of(4 if version == 6 else 6)
    )
    assert other_family.conclusion[0].kind == S.NO_FRONTEND_OF_FAMILY.kind
    assert _of_client(explained, "served", client).conclusion[0].kind == S.NO_AFFINITY.kind


@pytest.mark.parametrize("version", VERSIONS)
def test_connections_are_counted_by_endpoint(explained: Explained, version: plan.Version) -> None:
    """Through a cluster IP and a NodePort; those to another Service port do not count."""
    flush_conntrack(explained.runner.namespace)
    answers: list[str] = []
    for target, port in ((address("cluster.20", version), 80), (plan.NODE.lan.of(version), 30020)):
        for _ in range(MIN_ATTEMPTS):
            answer = explained.clients.dial("outside", target, port)
            assert isinstance(answer, Answered)
            answers.append(endpoint_key(answer.address, answer.port))
    explained.clients.dial("outside", address("cluster.21", version), 80)
    with explained.runner.namespace.entered():
        found = with_connections(explain(parse_query("served"), explained.objects), frontend_connections)
    totals = {each.family: each.connections for each in found.ports}
    family = FAMILY_OF_VERSION[version].value
    assert totals == {**dict.fromkeys(totals, 0), family: len(answers)}
    endpoints = next(each.endpoints for each in found.ports if each.family == family)
    assert {each.endpoint: each.connections for each in endpoints} == Counter(answers)


def test_service_has_no_rules_in_a_family_without_a_cluster_ip(explained: Explained) -> None:
    """Although the Service has an IPv6 slice with an endpoint."""
    found = explained.explain("[$remote-4]:8088", 6)
    assert [each.kind for each in found.conclusion] == [S.ENDPOINT_OF_UNSERVED.kind, S.NO_CLUSTER_IP_IN_FAMILY.kind]
    assert explained.clients.dial("outside", address("cluster.73", 6), 80, silent=True) == Silent()
    assert isinstance(explained.clients.dial("outside", address("cluster.73", 4), 80), Answered)


@pytest.mark.parametrize("version", VERSIONS)
def test_pods_of_other_nodes_get_no_reply_from_endpoints_on_other_nodes(
    explained: Explained, version: plan.Version
) -> None:
    """The endpoint replies to the pod itself, which does not know the connection."""
    family = FAMILY_OF_VERSION[version].value
    (port,) = (each for each in explained.explain("outer-elsewhere", version).ports if each.family == family)
    assert S.PODS_OF_THIS_NODE.kind in {each.kind for each in port.notes}
    (node_port,) = (each for each in port.frontends if each.what.startswith(":"))
    reply = explained.clients.dial("local-4", node_port.at, node_port.port)
    assert isinstance(reply, Answered)
    assert reply.server == "remote-1"
    assert explained.clients.dial("remote-4", node_port.at, node_port.port, silent=True) == Silent()


def test_node_ports_that_no_address_accepts(node: Node) -> None:
    explained = node.load(WITHOUT_NODE_PORTS)
    for version in VERSIONS:
        (port,) = (
            port
            for port in explained.explain("served", version).ports
            if port.family == FAMILY_OF_VERSION[version].value
        )
        assert [each.kind for each in port.problems] == [S.NO_NODE_PORT_ADDRESS.kind]
        own = plan.NODE.lan.of(version)
        assert explained.clients.dial("outside", own, 30020) == Rejected("reset")
        missing = explained.explain(f"[{own}]:30020", version)
        assert [each.kind for each in missing.conclusion] == [S.NODE_PORT_ELSEWHERE.kind]


@pytest.mark.parametrize("version", VERSIONS)
def test_service_without_ports_is_dropped(node: Node, version: plan.Version) -> None:
    """A server answers at its address, unless knft drops the packets."""
    explained = node.load(WITHOUT_NODE_PORTS)
    assert {S.NO_PORTS.kind} == _kinds(explained.explain("portless", version))
    found = explained.explain("[$cluster.99]:80", version)
    assert [each.kind for each in found.conclusion] == [
        S.OF_UNSERVED.kind,
        S.NO_PORTS.kind,
        S.UNSERVED_DROPPED.kind,
    ]
    assert {outcome.fate for outcome in found.outcomes} == {"dropped"}
    explained.clients.check(found.outcomes, address("cluster.99", version), 80, "TCP")


def test_kernel_without_a_table_of_a_family(node: Node) -> None:
    """Packets to an address that no Service has are not dropped any more: the server at it answers."""
    explained = node.load(WITHOUT_NODE_PORTS)
    own, unallocated = explained.runner.namespace, address("cluster.99", 6)
    assert explained.clients.dial("outside", unallocated, 80, silent=True) == Silent()
    own.run(["nft", "delete", "table", FAMILY_OF_VERSION[6].nft, TABLE])
    try:
        with own.entered():
            live = read_live_knft()
        rules = kernel_rules(live.rules, live.addresses)
        for what, sentence in ((f"[{unallocated}]:80", S.KERNEL_NO_TABLE), ("10.96.0.99:80", S.KERNEL_EQUAL)):
            found = explain(parse_query(what), explained.objects, rules)
            assert [each.kind for each in found.kernel] == [sentence.kind]
        served = explain(parse_query("served"), explained.objects, rules)
        only_kernel = explain(parse_query(unallocated), kernel_source(live.rules, live.addresses))
        for statements in (served.kernel, only_kernel.conclusion):
            assert [each.text for each in statements] == ["the kernel has no IPv6 table of knft"]
        assert isinstance(explained.clients.dial("outside", unallocated, 80), Answered)
        assert explained.clients.dial("outside", address("cluster.99", 4), 80, silent=True) == Silent()
    finally:
        explained.runner.mode.apply(own, explained.runner.folder, WITHOUT_NODE_PORTS, earlier=False)
