"""Packets that conntrack finds INVALID: what they do to a connection, and what ``--drop-invalid-packets`` does to them.

An endpoint sends a segment outside the window. conntrack does not translate it, so the client does not know the
connection and resets it (kubernetes/kubernetes#74839).
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from knft.comparison.explained import kernel_source
from knft.config import Config
from knft.explain.explain import explain
from knft.explain.query import parse_query
from knft.explain.sentences import Sentence
from knft.families import Family
from knft.serve.invalid_packets import InvalidPackets
from tests.packets.segments import ServiceConnection, resets_syn_ack
from tests.support.families import address
from tests.support.kernel_harness import CONFIG
from tests.support.knft_command import knft, sync_once, write_manifests
from tests.support.lab.plan import Version
from tests.support.lab.topology import Lab
from tests.support.packets.captured import capture_nftables
from tests.support.packets.programmed import ProgrammedNode, endpoints, service, tcp_and_udp
from tests.support.scenario import VERSIONS, Scenario
from tests.support.waiting import TIMEOUT, wait_until

pytestmark = pytest.mark.kernel

DROPPING = structs.replace(CONFIG, drop_invalid_packets=True)
LIBERAL = "net.netfilter.nf_conntrack_tcp_be_liberal"
SILENCE_SECONDS = 1.0
CLIENT, ENDPOINT, PORT = "local-3", "remote-1", 8080
OBJECTS = (service("web", 90, *tcp_and_udp("http", 80)), endpoints("web", ENDPOINT, http=PORT))
each_family = pytest.mark.parametrize("version", VERSIONS)


class SwitchedNode(ProgrammedNode):
    """The node; ``dropped`` counts as ``knft run`` does."""

    def __init__(self, lab: Lab, config: Config = CONFIG) -> None:
        super().__init__(lab, config)
        self._counter = InvalidPackets()

    def switch(self, config: Config) -> None:
        """Continue as a new process with another configuration."""
        self._config = config
        self._counter = InvalidPackets()
        self.restart([])

    def dropped(self) -> int | None:
        """Return how many packets were dropped."""
        with self.namespace.entered():
            self._counter.read()
        return self._counter.total

    def rules(self) -> list[str]:
        """Return the lines of nft's listing about INVALID packets."""
        listed = self.namespace.run(["nft", "list", "ruleset"]).stdout.splitlines()
        return [line.strip() for line in listed if "invalid" in line]


@pytest.fixture
def node(lab: Lab) -> Iterator[SwitchedNode]:
    """The node without the option, with a Service whose endpoint is on the other node."""
    with SwitchedNode(lab) as switched:
        switched.apply(OBJECTS)
        yield switched


@pytest.fixture
def connection(node: SwitchedNode, version: Version) -> Iterator[ServiceConnection]:
    with ServiceConnection(node.lab.host(CLIENT), node.lab.host(ENDPOINT), PORT, version) as opened:
        opened.connect(address("cluster.90", version), 80)
        yield opened


def _trace(node: SwitchedNode, connection: ServiceConnection) -> dict[str, Any]:
    """Return what ``knft trace`` says about the segment, from the rules in the kernel."""
    where, port = connection.client.getsockname()[:2]
    target = f"[{where}]:{port}" if ":" in where else f"{where}:{port}"
    flags = ("--from", connection.endpoint_address, "--to", target, "--state", "invalid", "-o", "json")
    ((end,),) = (way["ends"] for way in json.loads(knft(node.namespace, "trace", *flags).stdout)["ways"])
    return dict(end)


@each_family
def test_packet_outside_the_window_is_not_translated_and_resets_the_connection(
    node: SwitchedNode, connection: ServiceConnection
) -> None:
    assert node.rules() == []
    assert _trace(node, connection)["fate"] == "delivered"
    connection.send_outside_window()
    assert connection.source_of_arrived() == connection.endpoint_address
    connection.wait_for_reset()
    assert node.dropped() is None


@each_family
def test_connection_survives_a_packet_outside_the_window_that_is_dropped(
    node: SwitchedNode, connection: ServiceConnection
) -> None:
    """The option is turned on and off while the connection is open, as explanations say; a restart keeps the count.

    A late segment of an earlier test's connection is INVALID and counts too, so the counts have no upper bound.
    """
    node.switch(DROPPING)
    end = _trace(node, connection)
    assert (end["fate"], end["why"]) == ("dropped", "the packet's conntrack state is invalid")
    assert _notes(node) == {(Sentence.INVALID_DROPPED.kind,)}
    first = _dropped_after_segment(node, connection)
    node.switch(DROPPING)
    assert _dropped_after_segment(node, connection) > first
    rules = node.rules()
    assert len(rules) == len(Family)
    assert all(re.fullmatch("ct state invalid counter packets [0-9]+ bytes [0-9]+ drop.*", rule) for rule in rules)
    node.switch(CONFIG)
    assert node.rules() == []
    assert _notes(node) == {()}
    connection.exchange()


@each_family
def test_only_forwarded_packets_are_dropped(node: SwitchedNode, version: Version) -> None:
    """A SYN/ACK without a connection reaches a pod only without the option, and the node itself always."""
    outside, pod, own = node.lab.host("outside"), address("local-1", version), address("node", version)
    assert resets_syn_ack(outside, pod, TIMEOUT)
    node.switch(DROPPING)
    before = _dropped(node)
    assert not resets_syn_ack(outside, pod, SILENCE_SECONDS)
    assert _dropped(node) > before
    assert resets_syn_ack(outside, own, TIMEOUT)


def _notes(node: SwitchedNode) -> set[tuple[str, ...]]:
    """Return the notes that ``knft explain`` has for each of the Service ports, from the rules in the kernel."""
    captured = capture_nftables(node.namespace)
    found = explain(parse_query("web"), kernel_source(captured.rule_sets, captured.node_addresses))
    return {tuple(note.kind for note in port.notes) for port in found.ports}


def _dropped_after_segment(node: SwitchedNode, connection: ServiceConnection) -> int:
    """Send a segment outside the window, wait until it is dropped, and return how many packets were dropped."""
    before = _dropped(node)
    connection.send_outside_window()
    wait_until(lambda: _dropped(node) > before, f"no other packet was dropped: {before} in all")
    connection.exchange()
    return _dropped(node)


def _dropped(node: SwitchedNode) -> int:
    count = node.dropped()
    assert count is not None
    return count


@each_family
def test_liberal_conntrack_translates_a_packet_outside_the_window(
    node: SwitchedNode, connection: ServiceConnection, version: Version
) -> None:
    node.namespace.sysctl(LIBERAL, 1)
    try:
        connection.send_outside_window()
        assert connection.source_of_arrived() == address("cluster.90", version)
        connection.exchange()
    finally:
        node.namespace.sysctl(LIBERAL, 0)


def test_rule_is_left_out_if_conntrack_is_liberal_at_start(node: SwitchedNode, tmp_path: Path) -> None:
    """``knft run`` reads the sysctl at start; the command leaves the tables as they are when it exits."""
    write_manifests(tmp_path, Scenario("", list(OBJECTS), ()).manifests())
    log = sync_once(node.namespace, tmp_path, "--drop-invalid-packets")
    assert "INVALID" not in log
    assert len(node.rules()) == len(Family)
    node.namespace.sysctl(LIBERAL, 1)
    try:
        log = sync_once(node.namespace, tmp_path, "--drop-invalid-packets")
    finally:
        node.namespace.sysctl(LIBERAL, 0)
    assert "nf_conntrack_tcp_be_liberal is set, so knft does not drop INVALID packets" in log
    assert node.rules() == []
