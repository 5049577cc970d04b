"""Warnings about objects in a comparison on this machine; ``knft preflight`` has points with remedies for them."""

import json

import pytest

from knft.comparison.compare import compare
from knft.comparison.live import LiveSides
from knft.comparison.machine import MachineState
from knft.config import Config
from knft.model.objects import Node, ObjectChange, ObjectMeta
from knft.preflight.machine import _comparison
from tests.support.explain_sources import served

pytestmark = pytest.mark.kernel

CONFIG = Config("node-7", node_ips=("192.0.2.11",))
CLAIMED = ("203.0.113.9",)
OBJECTS = (
    Node(ObjectMeta("node-1")),
    *served("web", "10.96.0.10", external_ips=CLAIMED),
    *served("zoo", "10.96.0.11", external_ips=CLAIMED),
)
CHANGES = tuple(ObjectChange(None, item) for item in OBJECTS)
KUBE_PROXY = MachineState({"iptables-nft": "*nat\n:KUBE-SERVICES - [0:0]\nCOMMIT\n"}, "", "", (), {}, {}, frozenset())
TABLE = json.dumps({"nftables": [{"metainfo": {}}, {"table": {"family": "ip", "name": "knft"}}]})
KNFT = MachineState({}, "", "", (), {}, {4: TABLE, 6: TABLE.replace('"ip"', '"ip6"')}, frozenset())

WRONG_NODE = "--node: there is no Node 'node-7'; the Nodes are node-1"
NO_CLUSTER_CIDR = "no --cluster-cidr: "
CONTESTED = "contested: default/web:http and default/zoo:http claim 203.0.113.9:80/tcp"


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        (KUBE_PROXY, [WRONG_NODE, CONTESTED, NO_CLUSTER_CIDR]),
        # knft itself decides who gets a contested frontend, on both sides.
        (KNFT, [WRONG_NODE, NO_CLUSTER_CIDR]),
    ],
    ids=["kube-proxy", "knft"],
)
def test_warnings_about_objects(machine: MachineState, expected: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    found = compare(LiveSides(CONFIG, lambda: CHANGES).sides_of(machine))
    assert [next((each for each in expected if text.startswith(each)), text) for text in found.warnings] == expected
    monkeypatch.setattr(LiveSides, "read_machine", lambda _: machine)
    assert _comparison(CONFIG, CHANGES).warnings == []
