"""Compares the rules that a trace says a packet hits with the rules that have counted it in the kernel."""

import ipaddress
import itertools
import json
from typing import NamedTuple

from knft.interpret import nftables
from knft.interpret.compare.edit import join_rule_sets
from knft.interpret.outcomes import Origin, PacketClass, PacketFields, rule_hits
from knft.interpret.ranges import LOOPBACK, ranges, single
from knft.interpret.rules import RuleSet, Verdict
from knft.interpret.walk.walker import Walker
from tests.support.lab import plan
from tests.support.lab.links import flush_conntrack
from tests.support.lab.topology import Lab
from tests.support.lab.traffic import dial

PORT = 5353
_CHAIN_TYPES = {
    "prerouting": ("filter", "nat"),
    "input": ("filter", "nat"),
    "forward": ("filter",),
    "output": ("filter", "nat", "route"),
    "postrouting": ("filter", "nat"),
}
_PRIORITIES = {"filter": (-300, -99, -97, 0, 98, 101, 300), "nat": (-100, 100), "route": (-150,)}
_TESTS = (
    "",
    'iifname "eth0"',
    'iifname "lo"',
    'iifname != "eth0"',
    'oifname "eth0"',
    'oifname "cni0"',
    'oifname "lo"',
    'oifname != "lo"',
    "ct state new",
    "ct status dnat",
    "ct status snat",
    "meta mark 0x1",
    "fib daddr type local",
    "ip saddr 192.0.2.11",
    "ip daddr 192.0.2.11",
    "ip daddr 10.96.0.99",
)
NODE, _OUTSIDE = plan.NODE.lan.ipv4, plan.OUTSIDE.ipv4
POD, _FORWARDED, _POD_GATEWAY = "10.244.2.11", "10.96.0.99", "10.244.1.1"
"""The pod is on the other node and the forwarded address has no host, so packets leave the node by eth0."""
_COUNTED_CHAIN = "ip hits counted"
_SOURCE_PORTS = itertools.count(20000)
"""Used in turn: IPVS remembers a client after its virtual servers are cleared."""


def _rules(special: str) -> str:
    """Return a ruleset with counters for every test at every hook; ``special`` are additional chains."""
    chains = [
        f"chain {kind}-{hook}-{at} {{\n type {kind} hook {hook} priority {priority};\n"
        + "".join(f" udp dport {{ {PORT}, {PORT + 1} }} {test} counter jump counted\n" for test in _TESTS)
        + "}\n"
        for hook, kinds in _CHAIN_TYPES.items()
        for kind in kinds
        for at, priority in enumerate(_PRIORITIES[kind])
    ]
    return f"table ip hits {{\nchain counted {{ meta mark set meta mark; }}\n{''.join(chains)}{special}}}\n"


def _special(kind: str, hook: str, priority: int, rule: str) -> str:
    return f"chain special-{hook} {{\n type {kind} hook {hook} priority {priority};\n udp dport {PORT} {rule}\n}}\n"


SPECIAL_CHAINS = {
    "no special chains": "",
    "mark is set": _special("filter", "prerouting", -200, "meta mark set 1")
    + _special("route", "output", -200, "meta mark set 1"),
    "destination NAT to a pod": "".join(
        _special("nat", hook, -101, f"dnat to {POD}:{PORT + 1}") for hook in ("prerouting", "output")
    ),
    "destination NAT to the node": "".join(
        _special("nat", hook, -101, f"dnat to {NODE}:{PORT + 1}") for hook in ("prerouting", "output")
    ),
    "source NAT": _special("nat", "postrouting", 99, "snat to 192.0.2.11")
    + _special("nat", "input", 99, "snat to 192.0.2.11"),
    "drop": _special("filter", "forward", -1, "drop") + _special("filter", "input", -1, "drop"),
}


class SentPacket(NamedTuple):
    """A client, its source address, and the destination."""

    client: str
    source: str
    target: str


SENT_PACKETS = {
    "forwarded": SentPacket("outside", _OUTSIDE, _FORWARDED),
    "to the node": SentPacket("outside", _OUTSIDE, NODE),
    "from the node": SentPacket("node", NODE, _FORWARDED),
    "from the node to itself": SentPacket("node", NODE, NODE),
}


NO_RULES = RuleSet(version=4)


def compare(lab: Lab, special: str, packet: SentPacket, other_rules: RuleSet = NO_RULES) -> None:
    """Send a packet, and compare the rules of its trace with the rules that have counted it.

    ``other_rules`` has the loaded rules of other tools than nft.
    """
    node = lab.host("node").namespace
    flush_conntrack(node)
    node.run(["nft", "-f", "-"], stdin=_rules(SPECIAL_CHAINS[special]))
    try:
        _send(lab, packet)
        listed = node.run(["nft", "-j", "list", "table", "ip", "hits"]).stdout
    finally:
        node.run(["nft", "delete", "table", "ip", "hits"])
    traced, counted = _traced(join_rule_sets(nftables.read(listed, 4), other_rules), packet), _counted(listed)
    assert traced == counted, f"traced only: {sorted(traced - counted)}; counted only: {sorted(counted - traced)}"


def _send(lab: Lab, packet: SentPacket) -> None:
    port = next(_SOURCE_PORTS)
    dial(lab.host(packet.client), packet.target, PORT, "udp", source=packet.source, source_port=port, timeout=0.2)


def _counted(listed: str) -> set[tuple[str, int]]:
    """Return the rules whose counter is not zero, by chain and number."""
    found: set[tuple[str, int]] = set()
    seen: dict[str, int] = {}
    for rule in (item["rule"] for item in json.loads(listed)["nftables"] if "rule" in item):
        number = seen.setdefault(rule["chain"], 0)
        seen[rule["chain"]] += 1
        if any(part.get("counter", {}).get("packets") for part in rule["expr"] if isinstance(part, dict)):
            found.add((rule["chain"], number))
    return found


def _traced(rules: RuleSet, packet: SentPacket) -> set[tuple[str, int]]:
    """Return the counting rules that a trace hits, on all paths of the packet."""
    own = ranges((*(single(_number(address))[0] for address in (NODE, _POD_GATEWAY)), *LOOPBACK[4]))
    origin: Origin = "node" if packet.client == "node" else "network"
    box = PacketFields(
        ports=single(PORT),
        sources=single(_number(packet.source)),
        inputs=frozenset({"" if packet.client == "node" else "eth0"}),
        outputs=frozenset({"eth0"}),
        states=frozenset({"new"}),
    )
    packets = PacketClass(origin, 17, _number(packet.target), packet.target == NODE, box)
    hits = [hit for path in Walker(rules, own).paths(packets) for hit in rule_hits(path.trail)]
    numbers = {id(rule): number for chain in rules.chains.values() for number, rule in enumerate(chain.rules)}
    counting = [
        (hit.chain.removeprefix("ip hits "), hit.rule)
        for hit in hits
        if Verdict("jump", _COUNTED_CHAIN) in hit.rule.steps
    ]
    return {(chain, numbers[id(rule)]) for chain, rule in counting}


def _number(address: str) -> int:
    return int(ipaddress.ip_address(address))
