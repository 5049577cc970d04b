"""Finds the Service port that a frontend belongs to, by the comments of rules and set elements."""

import re
from collections.abc import Iterable, Iterator

from knft.interpret.ranges import sole_value
from knft.interpret.rules import Chain, Element, Field, Rule, RuleSet, Verdict, Within

_SERVED_MAPS = frozenset({"service-ips", "service-nodeports"})
_FRONTEND_MAPS = _SERVED_MAPS | {"no-endpoint-services", "no-endpoint-nodeports"}
"""The maps of frontends, in knft and in kube-proxy's nftables mode (docs/behaviour/nftables.md#table)."""
_NODE_PORT_MAPS = frozenset({"service-nodeports", "no-endpoint-nodeports"})
"""Those whose keys have no address."""

FRONTEND_CHAINS = frozenset(
    {
        "nat KUBE-SERVICES",
        "nat KUBE-NODEPORTS",
        "filter KUBE-SERVICES",
        "filter KUBE-EXTERNAL-SERVICES",
        "filter KUBE-PROXY-FIREWALL",
    }
)
"""The chains of kube-proxy's iptables mode in which each rule matches one frontend."""
_NAME = re.compile(r"[a-z0-9.-]+/[a-z0-9.-]+(:\S+)?")
"""The Service port at the start of kube-proxy's comments."""

_MAX_COMMENT_LENGTH = 128
"""The longest comment of a set element that the kernel keeps; longer names of Service ports are cut."""

FrontendKey = tuple[int | None, int, int]
"""Address, protocol and port; the address of a NodePort is None."""


class ServiceNames:
    """The names of Service ports by frontend; the first rule set that names a frontend takes precedence.

    A name that one rule set cuts is completed by another.
    """

    def __init__(self, rule_sets: Iterable[RuleSet]) -> None:
        """Collect the names from the comments of rule sets."""
        self._ports: dict[FrontendKey, str] = {}
        for rules in rule_sets:
            for frontend, name in _frontend_names(rules):
                known = self._ports.setdefault(frontend, name)
                if len(known) == _MAX_COMMENT_LENGTH and name.startswith(known):
                    self._ports[frontend] = name
        self._services: dict[int, str] = {}
        for (address, *_), name in self._ports.items():
            if address is not None:
                self._services.setdefault(address, name.partition(":")[0])

    @property
    def has_frontends(self) -> bool:
        """Whether any rule set has a frontend of a Service."""
        return bool(self._ports)

    def name(self, address: int, protocol: int, port: int | None, *, is_local: bool) -> str | None:
        """Return the Service port of a frontend; the Service if it has the address but not the port; or None."""
        if port is not None:
            name = self._ports.get((address, protocol, port))
            if name is None and is_local:
                name = self._ports.get((None, protocol, port))
            if name is not None:
                return name
        return self._services.get(address)


def _frontend_names(rules: RuleSet) -> Iterator[tuple[FrontendKey, str]]:
    yield from frontend_owners(rules).items()
    for name in sorted(FRONTEND_CHAINS & rules.chains.keys()):
        yield from _rule_names(rules.chains[name])


def _frontend_elements(rules: RuleSet, maps: frozenset[str]) -> Iterator[tuple[FrontendKey, Element]]:
    """Yield the elements of maps of frontends that have comments."""
    for name, collection in rules.collections.items():
        kind = name.rpartition(" ")[2]
        for element in collection.elements if kind in maps else ():
            key = (None, *element.key) if kind in _NODE_PORT_MAPS else element.key
            if element.comment and all(part is None or isinstance(part, int) for part in key):
                address, protocol, port = key
                yield (address, protocol, port), element  # type: ignore[misc] # checked above


def _rule_names(chain: Chain) -> Iterator[tuple[FrontendKey, str]]:
    for rule in chain.rules:
        claim = claimed_frontend(rule)
        if claim is not None:
            yield claim


def claimed_frontend(rule: Rule) -> tuple[FrontendKey, str] | None:
    """Return the frontend that a rule of kube-proxy matches, and its Service port; None if it matches no frontend."""
    name = _NAME.match(rule.comment)
    if name is None:
        return None
    values = {
        step.field: sole_value(step.ranges) for step in rule.steps if isinstance(step, Within) and not step.inverted
    }
    protocol, port = values.get(Field.PROTOCOL), values.get(Field.DESTINATION_PORT)
    if protocol is None or port is None:
        return None
    return (values.get(Field.DESTINATION), protocol, port), name[0]


def frontend_owners(rules: RuleSet) -> dict[FrontendKey, str]:
    """Return the Service port that owns each frontend, by the maps of knft or of kube-proxy's nftables mode."""
    return {key: element.comment for key, element in _frontend_elements(rules, _FRONTEND_MAPS)}


def frontend_chains(rules: RuleSet) -> dict[FrontendKey, str]:
    """Return the chain that each frontend with endpoints leads to, by the maps of served frontends."""
    return {
        key: element.value.chain
        for key, element in _frontend_elements(rules, _SERVED_MAPS)
        if isinstance(element.value, Verdict) and element.value.chain
    }
