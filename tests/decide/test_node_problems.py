"""Messages about probable mistakes in the node's settings (docs/behaviour/node.md#mismatch)."""

from typing import NamedTuple

import pytest

from knft.config import Config
from knft.decide.node_problems import (
    address_problem,
    missing_node_problem,
    nodeport_problem,
    shown_first,
    unknown_name_problem,
)
from knft.families import Family
from knft.model.node import NodeView
from tests.support.kube_objects import parametrize_cases

V4, V6 = Family.IPV4, Family.IPV6
LOCAL = frozenset({"127.0.0.1", "192.0.2.11", "fe80::1", "fd00::11", "::1"})
V4_LISTED, V6_LISTED = (
    "; the IPv4 addresses of this machine are 192.0.2.11",
    "; the IPv6 addresses of this machine are fd00::11",
)


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ([], ""),
        (["node-1"], "--node: there is no Node 'nod-1'; the Nodes are node-1"),
        (
            [f"node-{number}" for number in range(9, 0, -1)],
            "--node: there is no Node 'nod-1'; the Nodes are node-1, node-2, node-3, node-4, node-5 and 4 more",
        ),
    ],
)
def test_missing_node_message_lists_the_nodes(others: list[str], message: str) -> None:
    assert missing_node_problem("nod-1", others) == message


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (set[str](), ""),
        ({"nod-1", "node-1"}, ""),
        (
            {"node-2", "node-1"},
            (
                "--node: there is no Node object, and no endpoint is on node 'nod-1'; "
                "endpoints are on nodes node-1, node-2"
            ),
        ),
    ],
)
def test_name_without_node_objects_is_compared_with_endpoints(names: set[str], message: str) -> None:
    assert unknown_name_problem("nod-1", names) == message


@pytest.mark.parametrize(
    ("texts", "not_given", "shown"),
    [
        ("ba", 0, "a, b"),
        ("ba", 1, "a, b and 1 more"),
        ("fedcba", 0, "a, b, c, d, e and 1 more"),
        ("fedcba", 2, "a, b, c, d, e and 3 more"),
    ],
)
def test_first_texts_and_how_many_more(texts: str, not_given: int, shown: str) -> None:
    assert shown_first(texts, not_given) == shown


class AddressCase(NamedTuple):
    """A node, and the messages about its address and its NodePorts."""

    node: NodeView
    config: Config
    address: str = ""
    nodeports: str = ""


def _node(family: Family, address: str | None, *nodeport_ips: str) -> NodeView:
    return NodeView(family, "node-1", "", address, frozenset(nodeport_ips))


NO_INTERFACE = "no interface has the node's address"
CASES = {
    "the machine has the address": AddressCase(
        _node(V4, "192.0.2.11", "192.0.2.11"), Config("node-1", node_ips=("192.0.2.11",))
    ),
    "the machine lacks the flag's address": AddressCase(
        _node(V4, "192.0.2.9", "192.0.2.9"),
        Config("node-1", node_ips=("192.0.2.9",)),
        f"--node-ip: {NO_INTERFACE} 192.0.2.9{V4_LISTED}",
    ),
    "the machine lacks the Node's address": AddressCase(
        _node(V6, "fd00::9", "fd00::9"), Config("node-1"), f"Node 'node-1': {NO_INTERFACE} fd00::9{V6_LISTED}"
    ),
    "the Node's address accepts no NodePorts": AddressCase(
        _node(V6, "fd00::9"), Config("node-1", nodeport_addresses=("all",))
    ),
    "the flag's address accepts no NodePorts": AddressCase(
        _node(V4, "192.0.2.9"),
        Config("node-1", node_ips=("192.0.2.9",), nodeport_addresses=("all",)),
        f"--node-ip: {NO_INTERFACE} 192.0.2.9{V4_LISTED}",
    ),
    "no address": AddressCase(
        _node(V6, None),
        Config("node-1", node_ips=("192.0.2.11",)),
        nodeports="no IPv6 address accepts NodePorts: the node has none; "
        f"give the node's address with --node-ip{V6_LISTED}",
    ),
    "NodePorts on loopback addresses only": AddressCase(
        _node(V4, "192.0.2.11"),
        Config("node-1", nodeport_addresses=("127.0.0.0/8", "::1/128"), localhost_nodeports=True),
    ),
    "loopback addresses without the feature gate": AddressCase(
        _node(V4, "192.0.2.11"),
        Config("node-1", nodeport_addresses=("127.0.0.0/8", "::1/128")),
        nodeports=f"no IPv4 address accepts NodePorts: none is in --nodeport-addresses{V4_LISTED}",
    ),
    "loopback address": AddressCase(
        _node(V4, "127.0.0.1"),
        Config("node-1", node_ips=("127.0.0.1",)),
        nodeports="no IPv4 address accepts NodePorts: 127.0.0.1 is a loopback address; "
        f"give the node's address with --node-ip{V4_LISTED}",
    ),
    "no address in the CIDRs": AddressCase(
        _node(V4, None),
        Config("node-1", nodeport_addresses=("198.51.100.0/24",)),
        nodeports=f"no IPv4 address accepts NodePorts: none is in --nodeport-addresses{V4_LISTED}",
    ),
}


@parametrize_cases(CASES)
def test_messages_name_the_address_and_those_of_the_machine(case: AddressCase) -> None:
    assert address_problem(case.node, case.config, LOCAL) == case.address
    assert nodeport_problem(case.node, case.config, LOCAL) == case.nodeports


def test_machine_without_addresses_of_the_family_lists_none() -> None:
    node, config = _node(V4, "192.0.2.9"), Config("node-1", node_ips=("192.0.2.9",))
    assert address_problem(node, config, {"127.0.0.1"}) == f"--node-ip: {NO_INTERFACE} 192.0.2.9"
