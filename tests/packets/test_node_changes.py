"""What the Node object says may come late and change: packets go by what it says now."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from tests.packets.programmed import ProgrammedNode, endpoints, service, tcp_and_udp, with_load_balancer
from tests.support.families import addresses
from tests.support.kernel_harness import CONFIG
from tests.support.lab import plan
from tests.support.lab.links import netlink
from tests.support.lab.outcomes import Answered, Outcome, Silent
from tests.support.lab.responders import Responders
from tests.support.lab.topology import Lab
from tests.support.lab.traffic import dial
from tests.support.scenario import DEFAULT_NODE, VERSIONS, address

HTTP = 8080
SILENCE = 0.15
"""Seconds after which silence counts as a drop: what is not dropped here is answered within a millisecond or two."""

pytestmark = [pytest.mark.kernel, pytest.mark.parametrize("version", VERSIONS)]


@pytest.fixture(scope="module")
def served(lab: Lab) -> Iterator[Lab]:
    """The lab, with a server on this node and one on the other."""
    with Responders() as servers:
        for pod in ("local-1", "remote-1"):
            servers.serve(lab.host(pod), HTTP)
        yield lab


def _dial(lab: Lab, client: str, to: str, port: int, version: plan.Version, *, source: str | None = None) -> Outcome:
    return dial(lab.host(client), address(to, version), port, source=source, timeout=SILENCE)


def _is_masqueraded(lab: Lab, client: str, version: plan.Version) -> bool:
    outcome = _dial(lab, client, "cluster.50", 80, version)
    assert isinstance(outcome, Answered)
    return outcome.source != lab.host(client).address(version)


def _with_pods_in(*cidrs: str) -> dict[str, Any]:
    return {**DEFAULT_NODE, "spec": {"podCIDRs": list(cidrs)}}


def test_the_range_of_pods_comes_late_and_changes(served: Lab, version: plan.Version) -> None:
    """In mode NodeCIDR: who is masqueraded to a cluster IP, and who is short-circuited past policy Local."""
    config = msgspec.structs.replace(CONFIG, detect_local_mode="NodeCIDR", cluster_cidrs=())
    near = service("near", 51, *tcp_and_udp("http", 80, 30051), externalTrafficPolicy="Local")

    def facts() -> tuple[bool, bool, bool]:
        """Return whether the outside client is masqueraded, whether a pod is, and whether that is short-circuited."""
        short_circuited = _dial(served, "local-2", "node", 30051, version) != Silent()
        return _is_masqueraded(served, "outside", version), _is_masqueraded(served, "local-2", version), short_circuited

    with ProgrammedNode(served, config) as node:
        node.apply([service("s", 50, *tcp_and_udp("http", 80)), endpoints("s", "local-1", http=HTTP)])
        node.apply([near, endpoints("near", "remote-1", http=HTTP)])
        # Where the range is not known, nobody is an outsider, and nobody is a pod.
        assert facts() == (False, False, False)
        node.apply_node(_with_pods_in("$node.cidr"))
        assert facts() == (True, False, True)
        node.apply_node(_with_pods_in("$lan"))
        assert facts() == (False, True, False)
        node.apply_node(DEFAULT_NODE)
        assert facts() == (False, False, False)


def _with_address(name: str) -> dict[str, Any]:
    return {**DEFAULT_NODE, "status": {"addresses": [{"type": "InternalIP", "address": name}]}}


@pytest.fixture
def node_with_vip(served: Lab) -> Iterator[Lab]:
    """The lab, in which the node has the VIP as an address, and takes it for its own when it dials it."""
    vip = addresses("external.50")
    with netlink(served.host("node").namespace) as link:
        link.add_loopback_addresses(vip)
    yield served
    with netlink(served.host("node").namespace) as link:
        link.remove_loopback_addresses(vip)


def test_the_node_moves_into_and_out_of_a_source_range(node_with_vip: Lab, version: plan.Version) -> None:
    """It may dial the VIP as the VIP while its own address is in a range, and only then; others go by their own."""
    lab, vip = node_with_vip, address("external.50", version)
    guarded = service("s", 50, *tcp_and_udp("http", 80), loadBalancerSourceRanges=["$node/host"])

    def answered(client: str, source: str | None = None) -> bool:
        return _dial(lab, client, "external.50", 80, version, source=source) != Silent()

    with ProgrammedNode(lab, node=_with_address("$remote")) as node:
        node.apply([with_load_balancer(guarded, "$external.50"), endpoints("s", "local-1", http=HTTP)])
        for own, allowed in (("$remote", False), ("$node", True), ("$remote", False)):
            node.apply_node(_with_address(own))
            assert answered("node", vip) == allowed
            assert answered("node", address("node", version))
            assert not answered("outside")


def test_a_source_range_moves_over_the_node_and_away(node_with_vip: Lab, version: plan.Version) -> None:
    """The node stays where it is, and the ranges change."""
    lab, vip = node_with_vip, address("external.50", version)
    with ProgrammedNode(lab) as node:
        node.apply([endpoints("s", "local-1", http=HTTP)])
        for ranges, allowed in ((["$outside/host"], False), (["$lan"], True), (["$outside/host"], False)):
            guarded = service("s", 50, *tcp_and_udp("http", 80), loadBalancerSourceRanges=ranges)
            node.apply([with_load_balancer(guarded, "$external.50")])
            for source in (vip, address("node", version)):
                assert (_dial(lab, "node", "external.50", 80, version, source=source) != Silent()) == allowed
            assert isinstance(_dial(lab, "outside", "external.50", 80, version), Answered)
