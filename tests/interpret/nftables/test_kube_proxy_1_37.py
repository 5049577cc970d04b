"""Rules that only kube-proxy 1.37 writes in mode nftables (docs/behaviour/nftables.md#versions)."""

import json
from typing import Any

from knft.interpret.nftables import read
from knft.interpret.ranges import single
from knft.interpret.rules import Field, Translate, Verdict, VmapLookup, Within
from knft.protocols import TCP

TABLE = {"family": "ip", "table": "kube-proxy"}
REJECTS = "localhost-nodeport-reject-ports"


def _rule(chain: str, *statements: Any) -> dict[str, Any]:
    return {"rule": {**TABLE, "chain": chain, "handle": 9, "expr": statements}}


def _match(left: Any, right: Any) -> dict[str, Any]:
    return {"match": {"op": "==", "left": left, "right": right}}


DESTINATION = {"payload": {"protocol": "ip", "field": "daddr"}}
PROTOCOL, PORT = {"meta": {"key": "l4proto"}}, {"payload": {"protocol": "th", "field": "dport"}}
ELEMENT = [{"concat": ["udp", 30053]}, {"goto": {"target": "localhost-nodeport-reject-udp"}}]
LISTING = [
    {"metainfo": {"version": "1.0.6"}},
    {"table": {"family": "ip", "name": "kube-proxy", "handle": 1}},
    {"counter": {**TABLE, "name": "localhost-nodeport-rejected-udp", "handle": 2, "packets": 0, "bytes": 0}},
    {
        "map": {
            **TABLE, "name": REJECTS, "handle": 3, "type": ["inet_proto", "inet_service"], "map": "verdict",
            "elem": [ELEMENT],
        }
    },
    *({"chain": {**TABLE, "name": name, "handle": 4}}
      for name in ("localhost-nodeport-reject-udp", "nodeport-endpoints-check", "service-ABC")),
    _rule("localhost-nodeport-reject-udp", {"counter": "localhost-nodeport-rejected-udp"}, {"reject": None}),
    _rule("nodeport-endpoints-check", _match(DESTINATION, {"prefix": {"addr": "127.0.0.0", "len": 8}}),
          {"vmap": {"key": {"concat": [PROTOCOL, PORT]}, "data": f"@{REJECTS}"}}),
    _rule("service-ABC", _match(PROTOCOL, "tcp"), {"dnat": {"addr": "10.244.1.5", "port": 8080}}),
]  # fmt: skip


def test_plain_dnat_of_a_single_endpoint_and_rejected_node_ports_on_loopback() -> None:
    rules = read(json.dumps({"nftables": LISTING}), 4)
    steps = {name.rpartition(" ")[2]: [rule.steps for rule in chain.rules] for name, chain in rules.chains.items()}
    loopback = Within(Field.DESTINATION, ((0x7F000000, 0x7FFFFFFF),))
    lookup = VmapLookup(f"ip kube-proxy {REJECTS}", (Field.PROTOCOL, Field.DESTINATION_PORT))
    target = Translate("dnat", single(0x0AF40105), single(8080))
    assert steps == {
        "localhost-nodeport-reject-udp": [(Verdict("reject"),)],
        "nodeport-endpoints-check": [(loopback, lookup)],
        "service-ABC": [(Within(Field.PROTOCOL, single(TCP)), target)],
    }
