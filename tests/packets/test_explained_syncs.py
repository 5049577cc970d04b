"""What ``knft explain`` says about the running knft whose objects are not in force, and which endpoint packets reach.

The Service's endpoint has moved, but the kernel's rules lead to the former one.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from knft.comparison.captures import Rules
from knft.comparison.running import RunningExplainer
from knft.errors import CaptureError, KernelError, UnavailableError
from knft.explain.explanation import Explanation
from knft.explain.query import parse_query
from knft.explain.sentences import Sentence
from knft.families import Family
from knft.kernel.addresses import local_addresses
from knft.kernel.notifications import ForeignChange
from knft.kernel.table import KernelTable
from knft.model.endpoint import endpoint_key
from knft.nft.transaction import Transaction
from knft.render import layout
from knft.render.names import SERVICE_IPS, TABLE
from tests.support.explain_statements import checked_statements
from tests.support.families import addresses
from tests.support.kernel_harness import CONFIG, CheckedTable, decode_manifest
from tests.support.knft_command import knft
from tests.support.lab.links import flush_conntrack
from tests.support.lab.outcomes import Answered
from tests.support.lab.responders import Responders
from tests.support.lab.topology import Lab
from tests.support.lab.traffic import dial
from tests.support.nft_process import library_in
from tests.support.packets.captured import capture_nftables
from tests.support.packets.programmed import endpoints, service, tcp_and_udp
from tests.support.packets.scenario_runner import SILENCE
from tests.support.readable_daemon import ReadableDaemon
from tests.support.scenario import VERSIONS, Scenario, address
from tests.support.waiting import TIMEOUT

pytestmark = pytest.mark.kernel
PORT = 8080
FORMER, CURRENT = "local-1", "remote-1"
SERVICE = service("web", 90, *tcp_and_udp("http", 80))


class RunningNode:
    """The node with knft's daemon in this process, and a Service whose rules are in force."""

    def __init__(self, lab: Lab) -> None:
        self._lab, self.namespace = lab, lab.host("node").namespace
        library = library_in(self.namespace)
        self.tables = {
            family: CheckedTable(KernelTable(library, family, TABLE, cache_filter=layout.cache_filter(family, CONFIG)))
            for family in Family
        }
        self.start()
        self.add(SERVICE, endpoints("web", FORMER, http=PORT))
        assert self.sync()

    def start(self) -> None:
        """Continue as a new process without objects."""
        with self.namespace.entered():
            self.daemon = ReadableDaemon(CONFIG, self.tables, local_addresses())

    def add(self, *objects: dict[str, Any]) -> None:
        self.daemon.add(*map(decode_manifest, Scenario("", list(objects), ()).manifests()))

    def move(self) -> None:
        """Replace the endpoint."""
        self.add(endpoints("web", CURRENT, http=PORT))

    def sync(self) -> bool:
        with self.namespace.entered():
            return self.daemon.daemon.sync()

    def refuse(self, error: Exception) -> None:
        """Have the kernel refuse the new endpoint."""
        new = addresses(CURRENT)

        def refuse(transaction: Transaction) -> None:
            if any(each in str(transaction.added) for each in (new.ipv4, new.ipv6)):
                raise error

        for table in self.tables.values():
            table.on_commit = refuse

    def rules(self) -> Rules:
        return capture_nftables(self.namespace).rule_sets

    def explain(self, what: str = "web", read_rules: Callable[[], Rules] | None = None) -> Explanation:
        explainer = RunningExplainer(self.daemon.reader, read_rules or self.rules, pause=lambda _: None)
        found = explainer.explain(parse_query(what))
        assert checked_statements(found)
        return found

    def servers(self, number: int = 90, timeout: float = TIMEOUT) -> set[str]:
        """Return the endpoints that answer at a cluster IP in both families."""
        client, where = self._lab.host("local-3"), f"cluster.{number}"
        outcomes = [dial(client, address(where, version), 80, timeout=timeout) for version in VERSIONS]
        return {endpoint_key(each.address, each.port) for each in outcomes if isinstance(each, Answered)}


@pytest.fixture
def node(lab: Lab) -> Iterator[RunningNode]:
    flush_conntrack(lab.host("node").namespace)
    with Responders() as servers:
        for pod in (FORMER, CURRENT):
            servers.serve(lab.host(pod), PORT)
        running = RunningNode(lab)
        assert running.servers() == _keys(FORMER)
        yield running
        knft(running.namespace, "cleanup")


def _keys(pod: str) -> set[str]:
    return {endpoint_key(address(pod, version), PORT) for version in VERSIONS}


def _used(found: Explanation) -> set[str]:
    return {each.endpoint for port in found.ports for each in port.endpoints if each.is_used}


def _check_not_in_force(node: RunningNode, sentence: Sentence) -> None:
    """The explanation has the new endpoint and says why the kernel has not; the former one answers."""
    found = node.explain()
    assert _used(found) == _keys(CURRENT)
    assert {each.kind for each in found.kernel} == {Sentence.KERNEL_DIFFERENT.kind}
    assert {each.kind for each in found.sync} == {sentence.kind}
    assert node.servers() == _keys(FORMER)


def _check_after_sync(node: RunningNode) -> None:
    """The endpoint of the explanation answers."""
    assert node.sync()
    found = node.explain()
    assert ([each.kind for each in found.kernel], found.sync) == ([Sentence.KERNEL_EQUAL.kind], ())
    assert node.servers() == _used(found) != set()


def test_changes_wait_for_a_sync(node: RunningNode) -> None:
    node.move()
    _check_not_in_force(node, Sentence.SYNC_PENDING)
    _check_after_sync(node)


def test_no_sync_has_succeeded_since_knft_started(node: RunningNode) -> None:
    node.start()
    node.add(SERVICE)
    node.move()
    _check_not_in_force(node, Sentence.NEVER_SYNCED)
    _check_after_sync(node)


def test_sync_failed(node: RunningNode) -> None:
    node.refuse(UnavailableError("refused for the test"))
    node.move()
    assert not node.sync()
    _check_not_in_force(node, Sentence.SYNC_FAILED)
    for table in node.tables.values():
        table.stop_failing()
    _check_after_sync(node)


def test_service_port_is_quarantined(node: RunningNode) -> None:
    node.refuse(KernelError("refused for the test"))
    node.move()
    assert node.sync()
    _check_not_in_force(node, Sentence.QUARANTINED)
    for table in node.tables.values():
        table.stop_failing()
    # A new process tries at once what this one retries later.
    node.start()
    node.add(SERVICE)
    node.move()
    _check_after_sync(node)


def test_table_is_left_to_an_older_version(node: RunningNode, monkeypatch: pytest.MonkeyPatch) -> None:
    node.move()
    with monkeypatch.context() as patched:
        patched.setattr(node.daemon.daemon.foreign_changes, "is_left", lambda _: True)
        assert node.sync()
        _check_not_in_force(node, Sentence.TABLE_LEFT)
    _check_after_sync(node)


def test_another_program_changed_the_table(node: RunningNode) -> None:
    """It has removed all frontends."""
    for family in Family:
        node.namespace.run(["nft", "flush", "map", family.nft, TABLE, SERVICE_IPS])
        node.daemon.daemon.foreign_changes.record(ForeignChange(family, frozenset({SERVICE_IPS}), process="nft"))
    found = node.explain()
    assert {each.kind for each in found.kernel} == {Sentence.KERNEL_DIFFERENT.kind}
    assert {each.kind for each in found.sync} == {Sentence.TABLE_CHANGED.kind}
    assert node.servers(timeout=SILENCE) == set()
    _check_after_sync(node)


def test_rules_of_the_kernel_cannot_be_read(node: RunningNode) -> None:
    """The explanation is that of the objects, which are in force."""

    def fail() -> Rules:
        msg = "cannot be read"
        raise CaptureError(msg)

    found = node.explain(read_rules=fail)
    assert [each.kind for each in found.kernel] == [Sentence.KERNEL_UNREAD.kind]
    assert node.servers() == _used(found) == _keys(FORMER)


def test_service_of_another_proxy_is_unknown_to_the_running_knft(node: RunningNode) -> None:
    other = service("other", 91, *tcp_and_udp("http", 80))
    other["metadata"]["labels"] = {"service.kubernetes.io/service-proxy-name": "other"}
    node.add(other, endpoints("other", FORMER, http=PORT))
    assert node.sync()
    assert [each.kind for each in node.explain("other").conclusion] == [Sentence.UNKNOWN_SERVICE.kind]
    assert node.servers(91, SILENCE) == set()
