"""Whose frontend a packet dials: the names of Services, as rule sets tell them in their comments."""

import re
from collections.abc import Iterable, Iterator

from knft.interpret.ranges import sole_value
from knft.interpret.rules import Chain, Collection, Field, Rule, RuleSet, Within

_FRONTENDS = ("service-ips", "no-endpoint-services")
_NODE_PORTS = ("service-nodeports", "no-endpoint-nodeports")
"""Maps of knft and of kube-proxy's nftables mode alike (behaviour.md C.4)."""

FRONTEND_CHAINS = frozenset(
    {
        "nat KUBE-SERVICES",
        "nat KUBE-NODEPORTS",
        "filter KUBE-SERVICES",
        "filter KUBE-EXTERNAL-SERVICES",
        "filter KUBE-PROXY-FIREWALL",
    }
)
"""Chains of the iptables mode whose rules are about one frontend each."""
_NAME = re.compile(r"[a-z0-9.-]+/[a-z0-9.-]+(:\S+)?")
"""A Service port, as kube-proxy's comments begin."""

Frontend = tuple[int | None, int, int]
"""Address, protocol and port; a NodePort has no address."""


class ServiceNames:
    """The names of Service ports by frontend; the first rule set that tells one is believed."""

    def __init__(self, rule_sets: Iterable[RuleSet]) -> None:
        """Read the comments of all rule sets."""
        self._ports: dict[Frontend, str] = {}
        self._services: dict[int, str] = {}
        for rules in rule_sets:
            for frontend, name in _named(rules):
                self._ports.setdefault(frontend, name)
                if frontend[0] is not None:
                    self._services.setdefault(frontend[0], name.partition(":")[0])

    def name(self, address: int, protocol: int, port: int | None, *, is_local: bool) -> str | None:
        """Return whose frontend that is: a Service port, a Service where the port is none of its, or nobody's."""
        if port is not None:
            found = self._ports.get((address, protocol, port))
            if found is None and is_local:
                found = self._ports.get((None, protocol, port))
            if found is not None:
                return found
        return self._services.get(address)


def _named(rules: RuleSet) -> Iterator[tuple[Frontend, str]]:
    yield from frontend_owners(rules).items()
    for name in FRONTEND_CHAINS & rules.chains.keys():
        yield from _rules(rules.chains[name])


def _elements(collection: Collection, *, has_address: bool) -> Iterator[tuple[Frontend, str]]:
    for element in collection.elements:
        key = element.key if has_address else (None, *element.key)
        if element.comment and all(part is None or isinstance(part, int) for part in key):
            address, protocol, port = key
            yield (address, protocol, port), element.comment  # type: ignore[misc] # just looked at


def _rules(chain: Chain) -> Iterator[tuple[Frontend, str]]:
    for rule in chain.rules:
        found = claimed_frontend(rule)
        if found is not None:
            yield found


def claimed_frontend(rule: Rule) -> tuple[Frontend, str] | None:
    """Return the frontend that a rule of kube-proxy is about, and whose it is; None where it is about none."""
    found = _NAME.match(rule.comment)
    if found is None:
        return None
    values = {
        step.field: sole_value(step.ranges) for step in rule.steps if isinstance(step, Within) and not step.inverted
    }
    protocol, port = values.get(Field.PROTOCOL), values.get(Field.DESTINATION_PORT)
    if protocol is None or port is None:
        return None
    return (values.get(Field.DESTINATION), protocol, port), found[0]


def frontend_owners(rules: RuleSet) -> dict[Frontend, str]:
    """Return to whom knft gives which frontend."""
    found: dict[Frontend, str] = {}
    for name, collection in rules.collections.items():
        kind = name.rpartition(" ")[2]
        if kind in (*_FRONTENDS, *_NODE_PORTS):
            found.update(_elements(collection, has_address=kind in _FRONTENDS))
    return found
