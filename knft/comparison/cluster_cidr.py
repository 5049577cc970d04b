"""Tells whether an answer depends on a missing --cluster-cidr: whether a range of pods would change the outcomes."""

from collections.abc import Collection, Iterator

from msgspec import Struct
from msgspec.structs import replace

from knft.comparison.explained import rendered_rules
from knft.comparison.rendered import render_with_addresses
from knft.comparison.services import only_services
from knft.config import Config
from knft.decide.node_problems import cluster_cidr_problem
from knft.explain.explanation import Explanation
from knft.explain.sources import NodeRules
from knft.families import Family
from knft.interpret.compare.partition import are_equal
from knft.interpret.outcomes import PacketClass
from knft.interpret.ranges import sole_value
from knft.interpret.walk.walker import Walker
from knft.model.names import NamespacedName
from knft.model.objects import ObjectChange
from knft.silence import without_log

_HALVES = (("0.0.0.0/1", "::/1"), ("128.0.0.0/1", "8000::/1"))
"""Every client is a pod with one of these ranges, and outside with the other one. The node itself is never a pod."""


class ClusterCidrNote(Struct, frozen=True):
    """The note on a missing --cluster-cidr, for answers that depend on it; ``own`` are the addresses of the node."""

    changes: tuple[ObjectChange, ...]
    config: Config
    own: tuple[str, ...]

    def of_explanation(self, found: Explanation) -> tuple[str, ...]:
        """Return the note if clients of an explained frontend may have other outcomes."""
        problem = cluster_cidr_problem(self.config)
        frontends = [(port, each) for port in found.ports for each in port.frontends if each.outcomes]
        if not problem or not frontends:
            return ()
        services = {_service(port.port) for port in found.ports}
        without, *others = (rules.probes() for rules in self._rules(services))
        depends = any(
            not without[Family(port.family)].treats_equally(
                other[Family(port.family)], each.at, each.port, port.protocol
            )
            for other in others
            for port, each in frontends
        )
        return (problem,) if depends else ()

    def of_packet(self, packet: PacketClass, family: Family, service: str | None) -> tuple[str, ...]:
        """Return the note if a packet to a Service port may have another outcome."""
        problem = cluster_cidr_problem(self.config)
        if not problem or service is None:
            return ()
        halves = _HALVES if packet.origin == "network" else _halves_without(packet, family)
        without, *others = (
            Walker(found.rules[family.version], found.node_addresses[family.version]).paths(packet)
            for found in self._rules({_service(service)}, halves)
        )
        return (problem,) if any(not are_equal(without, other) for other in others) else ()

    def _rules(
        self, services: Collection[NamespacedName], pod_ranges: tuple[tuple[str, ...], ...] = _HALVES
    ) -> Iterator[NodeRules]:
        """Yield the rules for some Services: without ranges of pods, then with each of ``pod_ranges``."""
        changes = only_services(self.changes, services)
        for cidrs in ((), *pod_ranges):
            config = replace(self.config, cluster_cidrs=cidrs)
            with without_log():
                rendered = render_with_addresses(changes, config, self.own)
            yield rendered_rules(rendered, config, self.own)


def _halves_without(packet: PacketClass, family: Family) -> tuple[tuple[str, ...], ...]:
    """Return the half of all addresses in which the source of the packet is not."""
    source = sole_value(packet.fields.sources) or 0
    return (_HALVES[1 - (source >> (31 if family is Family.IPV4 else 127))],)


def _service(port: str) -> NamespacedName:
    """Return the Service of a Service port's name, such as ``shop/web:http``."""
    return NamespacedName(*port.partition(":")[0].split("/"))
