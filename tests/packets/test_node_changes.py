"""Packets are handled by the current Node object, which may be added late and change."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from tests.support.families import addresses
from tests.support.kernel_harness import CONFIG
from tests.support.lab import plan
from tests.support.lab.links import netlink
from tests.support.lab.outcomes import Answered, Outcome, Silent
from tests.support.lab.responders import Responders
from tests.support.lab.topology import Lab
from tests.support.lab.traffic import dial
from tests.support.packets.programmed import ProgrammedNode, endpoints, service, tcp_and_udp, with_load_balancer
from tests.support.scenario import DEFAULT_NODE, VERSIONS, address
from tests.support.waiting import TIMEOUT

HTTP = 8080
SILENCE = 0.15
"""Seconds without an answer after which a packet counts as dropped. Other packets are answered within a few ms."""

pytestmark = [pytest.mark.kernel, pytest.mark.parametrize("version", VERSIONS)]


@pytest.fixture(scope="module")
def served(lab: Lab) -> Iterator[Lab]:
    """The lab with a server on each node."""
    with Responders() as servers:
        for pod in ("local-1", "remote-1"):
            servers.serve(lab.host(pod), HTTP)
        yield lab


def _dial(
    lab: Lab, client: str, to: str, port: int, version: plan.Version, *, source: str | None = None, answered: bool
) -> Outcome:
    """Connect, and wait as long as it takes if an answer is expected."""
    timeout = TIMEOUT if answered else SILENCE
    return dial(lab.host(client), address(to, version), port, source=source, timeout=timeout)


def _is_masqueraded(lab: Lab, client: str, version: plan.Version) -> bool:
    outcome = _dial(lab, client, "cluster.50", 80, version, answered=True)
    assert isinstance(outcome, Answered)
    return outcome.source != lab.host(client).address(version)


def _with_pods_in(*cidrs: str) -> dict[str, Any]:
    return {**DEFAULT_NODE, "spec": {"podCIDRs": list(cidrs)}}


def test_masquerading_follows_the_pod_cidr_of_the_node(served: Lab, version: plan.Version) -> None:
    """In mode NodeCIDR it decides which clients of a cluster IP are masqueraded, and which bypass policy Local."""
    config = msgspec.structs.replace(CONFIG, detect_local_mode="NodeCIDR", cluster_cidrs=())
    near = service("near", 51, *tcp_and_udp("http", 80, 30051), externalTrafficPolicy="Local")

    def facts(*, bypass: bool) -> tuple[bool, bool, bool]:
        """Return whether the outside client is masqueraded, whether a pod is, and whether it bypasses policy Local."""
        short_circuited = _dial(served, "local-2", "node", 30051, version, answered=bypass) != Silent()
        return _is_masqueraded(served, "outside", version), _is_masqueraded(served, "local-2", version), short_circuited

    with ProgrammedNode(served, config) as node:
        node.apply([service("s", 50, *tcp_and_udp("http", 80)), endpoints("s", "local-1", http=HTTP)])
        node.apply([near, endpoints("near", "remote-1", http=HTTP)])
        # Without the range, no client is known to be outside, and none to be a pod.
        assert facts(bypass=False) == (False, False, False)
        node.apply_node(_with_pods_in("$node.cidr"))
        assert facts(bypass=True) == (True, False, True)
        node.apply_node(_with_pods_in("$lan"))
        assert facts(bypass=False) == (False, True, False)
        node.apply_node(DEFAULT_NODE)
        assert facts(bypass=False) == (False, False, False)


def _with_address(name: str) -> dict[str, Any]:
    return {**DEFAULT_NODE, "status": {"addresses": [{"type": "InternalIP", "address": name}]}}


@pytest.fixture
def node_with_vip(served: Lab) -> Iterator[Lab]:
    """The lab; the node has the load balancer IP as an address, and uses it as its source address there."""
    vip = addresses("external.50")
    with netlink(served.host("node").namespace) as link:
        link.add_loopback_addresses(vip)
    yield served
    with netlink(served.host("node").namespace) as link:
        link.remove_loopback_addresses(vip)


def test_node_address_moves_into_and_out_of_a_source_range(node_with_vip: Lab, version: plan.Version) -> None:
    """The node may use the load balancer IP as its source only while its own address is in a source range."""
    lab, vip = node_with_vip, address("external.50", version)
    restricted = service("s", 50, *tcp_and_udp("http", 80), loadBalancerSourceRanges=["$node/host"])

    def is_answered(client: str, source: str | None = None, *, expected: bool) -> bool:
        return _dial(lab, client, "external.50", 80, version, source=source, answered=expected) != Silent()

    with ProgrammedNode(lab, node=_with_address("$remote")) as node:
        node.apply([with_load_balancer(restricted, "$external.50"), endpoints("s", "local-1", http=HTTP)])
        for own, allowed in (("$remote", False), ("$node", True), ("$remote", False)):
            node.apply_node(_with_address(own))
            assert is_answered("node", vip, expected=allowed) == allowed
            assert is_answered("node", address("node", version), expected=True)
            assert not is_answered("outside", expected=False)


def test_source_range_moves_to_the_node_and_away(node_with_vip: Lab, version: plan.Version) -> None:
    """The node's address stays, and the source ranges change."""
    lab, vip = node_with_vip, address("external.50", version)
    with ProgrammedNode(lab) as node:
        node.apply([endpoints("s", "local-1", http=HTTP)])
        for ranges, allowed in ((["$outside/host"], False), (["$lan"], True), (["$outside/host"], False)):
            restricted = service("s", 50, *tcp_and_udp("http", 80), loadBalancerSourceRanges=ranges)
            node.apply([with_load_balancer(restricted, "$external.50")])
            for source in (vip, address("node", version)):
                outcome = _dial(lab, "node", "external.50", 80, version, source=source, answered=allowed)
                assert (outcome != Silent()) == allowed
            outcome = _dial(lab, "outside", "external.50", 80, version, answered=True)
            assert isinstance(outcome, Answered)
