"""Builds small IPv4 rule sets and packet classes, and walks the packets through them."""

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

from msgspec.structs import replace

from knft.interpret.compare.partition import partition
from knft.interpret.outcomes import AffinityEntry, Outcome, PacketClass, PacketFields, Path
from knft.interpret.ranges import LOOPBACK, Ranges, contains, ranges, single
from knft.interpret.rules import BaseChain, Chain, Collection, Hook, Rule, RuleSet, Step, Verdict, VirtualServer
from knft.interpret.walk.walker import Walker

TCP, UDP, ICMP = 6, 17, 1
CLIENT, NODE, FRONTEND, POD, OTHER_POD = 10, 20, 30, 40, 41
"""Addresses of a client, the node, a frontend, and two endpoints."""
OWN = ranges((*single(NODE), *LOOPBACK[4]))
ACCEPT, DROP, REJECT, RETURN = (Verdict(kind) for kind in ("accept", "drop", "reject", "return"))
_PRIORITIES = {"filter": 0, "route": -150, "nat": -100}


def base(hook: Hook, *rules: tuple[Step, ...], kind: Any = "filter", priority: int | None = None, **more: Any) -> Any:
    """Return a base chain and its rules; the default name consists of kind and hook."""
    name = more.pop("name", f"{kind} {hook}")
    at = _PRIORITIES[kind] if priority is None else priority
    return BaseChain(name, hook, kind, at, **more), chain(name, *rules)


def chain(name: str, *rules: tuple[Step, ...]) -> Chain:
    """Return a chain; the text of each rule is its number."""
    return Chain(name, tuple(Rule(steps, str(number)) for number, steps in enumerate(rules)))


def rule_set(
    *bases: tuple[BaseChain, Chain],
    chains: Iterable[Chain] = (),
    collections: Iterable[Collection] = (),
    servers: tuple[VirtualServer, ...] = (),
    bound: Ranges = (),
) -> RuleSet:
    """Return an IPv4 rule set."""
    return RuleSet(
        version=4,
        base_chains=tuple(found for found, _ in bases),
        chains={found.name: found for found in (*(of_base for _, of_base in bases), *chains)},
        collections={found.name: found for found in collections},
        servers=servers,
        ipvs_addresses=bound,
    )


def from_outside(destination: int = FRONTEND, port: int = 80, **changed: Any) -> PacketClass:
    """Return new packets that arrive by eth0; ``changed`` are packet fields, or ``protocol``."""
    return _packets("network", destination, port, {"inputs": frozenset({"eth0"}), "sources": single(CLIENT), **changed})


def from_node(destination: int = FRONTEND, port: int = 80, **changed: Any) -> PacketClass:
    """Return new packets of a local process; ``changed`` can also contain ``is_source_selected``."""
    return _packets("node", destination, port, {"sources": single(NODE), **changed})


def _packets(origin: Any, destination: int, port: int, changed: dict[str, Any]) -> PacketClass:
    protocol = changed.pop("protocol", TCP)
    is_source_selected = changed.pop("is_source_selected", False)
    fields = PacketFields(single(port), sources=(), outputs=frozenset({"eth0"}), states=frozenset({"new"}))
    return PacketClass(
        origin,
        protocol,
        destination,
        contains(OWN, destination),
        fields._replace(**changed),
        is_source_selected=is_source_selected,
    )


def paths(rules: RuleSet, packets: PacketClass, affinity: frozenset[AffinityEntry] = frozenset()) -> list[Path]:
    """Return all paths of the packets."""
    return Walker(rules, OWN).paths(packets, affinity)


def outcomes(
    rules: RuleSet, packets: PacketClass, affinity: frozenset[AffinityEntry] = frozenset()
) -> dict[Outcome, Fraction]:
    """Return the share of each outcome; the rules must not split the class."""
    (piece,) = partition(paths(rules, packets, affinity), ())
    assert piece.fields == packets.fields
    found: dict[Outcome, Fraction] = {}
    for path in piece.left:
        found[path.outcome] = found.get(path.outcome, Fraction()) + path.share
    return found


def outcome(rules: RuleSet, packets: PacketClass, affinity: frozenset[AffinityEntry] = frozenset()) -> Outcome:
    """Return the only outcome of the packets."""
    (found,) = outcomes(rules, packets, affinity)
    return found


def hit_rules(rules: RuleSet, packets: PacketClass) -> list[str]:
    """Return the rules that the packets hit on their only path: chain and number, in order."""
    (path,) = paths(rules, packets)
    met = []
    passed = path.trail
    while passed is not None:
        met.append(f"{passed.chain}: {passed.rule.text}")
        passed = passed.previous
    return met[::-1]


def established(packets: PacketClass) -> PacketClass:
    """Return the later packets of the same connections."""
    return replace(packets, fields=packets.fields._replace(states=frozenset({"established"})))
