"""Compares both sides: every class of packets goes through kube-proxy's rules and through knft's."""

import time
from collections.abc import Iterable, Iterator

from knft.comparison.sides import Sides
from knft.families import IpVersion
from knft.interpret.compare.comparison import Comparison, Progress
from knft.interpret.compare.edit import join_rule_sets
from knft.interpret.compare.expected_differences.catalog import ExpectedDifferences
from knft.interpret.compare.expected_differences.ipvs_edits import node_addresses
from knft.interpret.compare.packet_classes import PacketClasses
from knft.interpret.compare.report import FamilyReport, Report, summarise
from knft.interpret.compare.services import ServiceNames
from knft.interpret.mentioned_values import MentionedValues
from knft.interpret.ranges import ranges
from knft.takeover.names import Mode

_HOST_RULE_WARNINGS = {
    "forwarding rules": "the host's own rules drop forwarded packets that kube-proxy accepts first; with knft, add "
    "host rules that accept Service traffic",
    "health check ports": "the host's own rules drop packets to healthCheckNodePorts that kube-proxy accepts first; "
    "with knft, add host rules that accept them",
}
"""Expected differences that clients notice if the host has rules of its own, and what to do."""


def compare(sides: Sides, progress: Progress = lambda _, __: None) -> Report:
    """Return the differences between both sides."""
    started = time.monotonic()
    families = [_compare_family(version, sides, progress) for version in sides.kube_proxy if version in sides.knft]
    seconds = time.monotonic() - started
    warnings = [*sides.warnings, *_warnings(sides, families)]
    return Report(sides.kube_proxy_name, sides.knft_name, families, seconds=seconds, remarks=warnings)


def _compare_family(version: IpVersion, sides: Sides, progress: Progress) -> FamilyReport:
    comparison, names = comparison_of(version, sides)
    return summarise(version, comparison.counts, comparison.differences(progress), names)


def comparison_of(version: IpVersion, sides: Sides) -> tuple[Comparison, ServiceNames]:
    """Return the comparison of one IP version, and the Services of the frontends."""
    kube_proxy, knft, own = sides.kube_proxy[version], sides.knft[version], sides.node_addresses[version]
    if version in sides.foreign:
        # Rules of other programs stay in force with knft. The kernel runs the youngest base chain of a priority
        # first, and knft's would be the youngest.
        knft = join_rule_sets(knft, sides.foreign[version])
    is_ipvs = sides.mode is Mode.IPVS
    if is_ipvs:
        own = ranges((*own, *node_addresses(kube_proxy)))
    bound = kube_proxy.ipvs_addresses if is_ipvs else None
    classes = PacketClasses(version, MentionedValues((kube_proxy, knft)), own, ipvs_addresses=bound)
    expected = ExpectedDifferences(sides.mode, kube_proxy, knft)
    return Comparison(kube_proxy, knft, classes, own, expected), ServiceNames((knft, kube_proxy))


def _warnings(sides: Sides, families: Iterable[FamilyReport]) -> Iterator[str]:
    for version in sides.knft.keys() - sides.kube_proxy.keys():
        yield f"IPv{version} was not compared: there is no capture of it"
    groups = [group for family in families for group in family.groups if group.reason is not None]
    for reason, warning in _HOST_RULE_WARNINGS.items():
        classes = sum(group.classes for group in groups if reason in str(group.reason))
        if classes and sides.foreign:
            yield f"{warning} ({classes} classes)"
