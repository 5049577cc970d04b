"""Tables of other versions of knft are adopted under traffic: no connection is lost, and clients stay with servers.

The older table is that of the last released version (``released_layout``). The newer one is this version's, changed
as a later version might: with other sets, maps, chains and hooks, to which traffic is sent.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from knft.config import Config
from knft.families import Family
from knft.nft.codec.listed_table import is_declared_as
from knft.nft.codec.listing import parse_listing
from knft.render import layout
from tests.support.knft_command import knft, write_manifests
from tests.support.lab.clients import NONE, ClientProcesses, ClientTarget, Connection
from tests.support.lab.links import flush_conntrack
from tests.support.lab.namespace import Namespace
from tests.support.lab.plan import Version
from tests.support.lab.responder_process import ResponderProcess
from tests.support.lab.topology import Lab
from tests.support.lab.traffic import OpenConnection, dial_each
from tests.support.packets.manifest_knft import ManifestKnft, NftMonitor
from tests.support.packets.many_clients import HTTP, clients
from tests.support.packets.programmed import endpoints, service, tcp_and_udp
from tests.support.packets.released_layout import (
    CLUSTER,
    FAMILIES,
    PODS,
    released_program,
    released_table,
    unpack_released,
)
from tests.support.packets.table_facts import differences, table_facts
from tests.support.scenario import VERSIONS, Scenario, address

STICKY_CLIENTS = 100
ENDLESS = 10**8
STICKY, PLAIN, WIDE = "cluster.50", "cluster.51", "cluster.52"
LOCAL_CLIENT = "local-4"
ADDED = Scenario("", [service("added", 60, *tcp_and_udp("http", 80)), endpoints("added", *PODS[:2], http=HTTP)], ())

pytestmark = pytest.mark.kernel


class Traffic:
    """Clients of all Services in both families, before, during and after a change of the tables."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self._lab = lab
        targets = [
            ClientTarget(address(name, version), 80, protocol)
            for version in VERSIONS
            for name in (STICKY, PLAIN, WIDE)
            for protocol in ("tcp", "udp")
        ]
        self._client = lab.host(LOCAL_CLIENT)
        self._processes = ClientProcesses({self._client: targets}, folder, ENDLESS, seed=1, pause=0.0005)

    def check_during(self, change: Callable[[], None], *, keeps_affinity: bool = True) -> list[Connection]:
        """Make a change, and check that it costs nobody anything; return the connections made meanwhile."""
        with ExitStack() as stack:
            before = self._servers_of_sticky_clients()
            open_connections = [
                stack.enter_context(OpenConnection(self._client, address(name, version), 80))
                for version in VERSIONS
                for name in (STICKY, PLAIN, WIDE)
            ]
            with self._processes:
                self._processes.wait_for_connections()
                change()
                # However slow the machine is, there are connections after the change, too.
                self._processes.wait_for_more()
            assert all(connection.echoes(b"still open") for connection in open_connections)
        if keeps_affinity:
            assert self._servers_of_sticky_clients() == before
        connections = list(self._processes.connections(self._client))
        lost = [each for each in connections if each.error != NONE or each.retransmissions]
        assert lost == [], f"{len(lost)} of {len(connections)} connections were lost"
        return connections

    def _servers_of_sticky_clients(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for version in VERSIONS:
            sources = clients(version, STICKY_CLIENTS)
            found |= dial_each(self._lab.host("outside"), address(STICKY, version), 80, "tcp", sources)
        return found


class Adoption:
    """A node with a table that one version of knft made, and another version that adopts it."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab, self.node, self._folder = lab, lab.host("node").namespace, folder
        self.manifests = folder / "manifests"
        self.manifests.mkdir()
        write_manifests(self.manifests, CLUSTER.manifests())
        self.traffic = Traffic(lab, folder)

    def run(self, *program: str) -> None:
        """Run a version of knft, by default this one, until it has compared the tables; then kill it."""
        process = ManifestKnft(self.node, self.manifests, self._folder / "log", *([program] if program else []))
        try:
            process.wait_for_full_syncs()
            process.wait_until_idle(0.5)
        finally:
            print(process.log_text())  # Shown if the test fails.
            process.kill()

    def check(self, *program: str, keeps_affinity: bool = True) -> None:
        """Adopt the tables under traffic; they must not be replaced."""
        with NftMonitor(self.node, self._folder / "monitor") as monitor:
            self.traffic.check_during(lambda: self.run(*program), keeps_affinity=keeps_affinity)
        assert not [line for line in monitor.changes() if line.startswith("delete table")]


@pytest.fixture
def adoption(lab_with_clients: Lab, tmp_path: Path) -> Iterator[Adoption]:
    node = lab_with_clients.host("node").namespace
    flush_conntrack(node)
    with ResponderProcess(map(lab_with_clients.host, PODS), [HTTP]):
        yield Adoption(lab_with_clients, tmp_path)
    knft(node, "cleanup")
    flush_conntrack(node)


def _load(node: Namespace, commands: str) -> None:
    node.run(["nft", "-f", "-"], stdin=commands)


def _load_released_tables(node: Namespace) -> None:
    for family in FAMILIES:
        _load(node, released_table(family))


def _assert_tables_are_as_new(adoption: Adoption) -> None:
    """Compare the tables with those that this version makes on an empty node."""
    actual = table_facts(adoption.node)
    knft(adoption.node, "cleanup")
    adoption.run()
    expected = table_facts(adoption.node)
    assert actual.keys() == expected.keys()
    assert [line for family in expected for line in differences(expected[family], actual[family])] == []


def test_table_of_the_released_version_is_adopted(adoption: Adoption) -> None:
    _load_released_tables(adoption.node)
    adoption.check()
    _assert_tables_are_as_new(adoption)


LATER_VERSION = """
    add map {family} knft later-endpoints {{
        typeof numgen random mod 65536 : {family} daddr . tcp dport
        elements = {{ 0 : {pods[0]} . 8080, 1 : {pods[1]} . 8080 }}
    }}
    add set {family} knft later-set {{ type inet_service; elements = {{ 80 }}; }}
    add counter {family} knft later-counter
    add chain {family} knft later-chain
    add rule {family} knft later-chain counter name later-counter
    add rule {family} knft later-chain meta l4proto tcp dnat {family} to numgen random mod 2 map @later-endpoints
    delete element {family} knft service-ips {{ {plain} . tcp . 80 }}
    add element {family} knft service-ips {{ {plain} . tcp . 80 : goto later-chain }}
    delete element {family} knft endpoints-tcp {{ {plain} . 80 . 0, {plain} . 80 . 1, {plain} . 80 . 2 }}
    add chain {family} knft later-base {{ type nat hook prerouting priority -102; }}
    add rule {family} knft later-base th dport @later-set jump services
    flush chain {family} knft nat-prerouting
    flush map {family} knft wide-endpoints-sctp-0
    delete map {family} knft wide-endpoints-sctp-0
    delete chain {family} knft {markers[0]}
    delete chain {family} knft {markers[1]}
    add chain {family} knft rules-01234567
"""
"""A later version has other base chains, stores the endpoints of a Service in another map, and has not all maps."""


def test_table_of_a_later_version_is_adopted(adoption: Adoption) -> None:
    adoption.run()
    versions: dict[Family, Version] = {Family.IPV4: 4, Family.IPV6: 6}
    for family, version in versions.items():
        listed = adoption.node.run(["nft", "list", "chains", family.nft]).stdout.split()
        edit = LATER_VERSION.format(
            family=family.nft,
            plain=address(PLAIN, version),
            pods=[adoption.lab.host(pod).address(version) for pod in PODS],
            markers=[word for word in listed if layout.is_marker(word)],
        )
        _load(adoption.node, edit)
    adoption.check()
    _assert_tables_are_as_new(adoption)


def test_released_version_adopts_this_table(adoption: Adoption, tmp_path: Path) -> None:
    """Its own code runs, and then this version's again; it cannot read the endpoint IDs of sticky clients."""
    program = released_program(unpack_released(tmp_path / "released"))
    adoption.run()
    adoption.check(*program, keeps_affinity=False)
    adoption.check()


def test_released_version_that_still_runs_keeps_the_table(adoption: Adoption, tmp_path: Path) -> None:
    """It does not know the instance lock. Without an end, both would replace each other's rules.

    Until the table is left, their transactions may meet, and a connection may be refused; afterwards none is lost.
    """
    newer = ManifestKnft(adoption.node, adoption.manifests, tmp_path / "newer.log")
    newer.wait_for_full_syncs()
    program = released_program(unpack_released(tmp_path / "released"))
    older = ManifestKnft(adoption.node, adoption.manifests, tmp_path / "older.log", program)
    try:
        newer.wait_for_log("does not hold the instance lock", len(FAMILIES))
        older.wait_until_idle()
        adoption.traffic.check_during(lambda: _change_and_end_older(adoption, newer, older))
    finally:
        print(newer.log_text(), older.log_text())  # Shown if the test fails.
        older.kill()
        newer.kill()
    _assert_tables_are_as_new(adoption)


def _change_and_end_older(adoption: Adoption, newer: ManifestKnft, older: ManifestKnft) -> None:
    """Add a Service, which only the older version programs, and end that version."""
    before = newer.syncs()
    older.sync_after(lambda: write_manifests(adoption.manifests, [*CLUSTER.manifests(), *ADDED.manifests()]))
    older.wait_until_idle()
    assert newer.syncs() == before
    for family in FAMILIES:
        assert "default/added" in adoption.node.run(["nft", "list", "map", family, "knft", "service-ips"]).stdout
    full_syncs = newer.log_text().count("full sync")
    older.kill()
    newer.wait_for_log("the other knft process may have ended", len(FAMILIES))
    newer.wait_for_log("full sync", full_syncs + len(FAMILIES))


@pytest.mark.parametrize("family", Family)
def test_this_table_contains_the_released_layout(family: Family, adoption: Adoption) -> None:
    """This is what the released version requires of a table that it does not replace."""
    _load(adoption.node, released_table(family.nft))
    released = parse_listing(adoption.node.run(["nft", "-j", "list", "table", family.nft, "knft"]).stdout)
    containers = {container.name: container for container in layout.containers(family)}
    for listed, declared in released.declarations.items():
        assert is_declared_as(declared, containers[listed.name])
    chains = {chain.name: chain for chain in layout.constant_chains_with_markers(family, Config("node-1"))}
    assert released.hooks == {name: chains[name].hook for name in released.hooks}
    (marker,) = (name for name in released.rule_counts if name.startswith("layout-"))
    assert marker in chains
