"""Compares both sides: computes the outcome of every packet class with kube-proxy's rules and with knft's."""

import time
from collections.abc import Collection, Iterator

from knft.comparison.captures import SAVE_PROGRAMS
from knft.comparison.sides import Sides
from knft.families import IpVersion
from knft.interpret.compare.comparison import Comparison, Progress
from knft.interpret.compare.deciding_rules import DecidingRule, format_decision
from knft.interpret.compare.edit import join_rule_sets
from knft.interpret.compare.example_packets import LocalAddresses
from knft.interpret.compare.expected_differences.catalogue import ExpectedDifferences
from knft.interpret.compare.expected_differences.ipvs_edits import node_port_server_addresses
from knft.interpret.compare.packet_classes import PacketClasses
from knft.interpret.compare.report import FamilyReport, Report, RuleFiles, summarise
from knft.interpret.compare.services import ServiceNames
from knft.interpret.mentioned_values import MentionedValues
from knft.interpret.ranges import ranges
from knft.interpret.walk.servers import IPVS_CHAIN
from knft.proxy_mode import Mode

_HOST_RULE_WARNINGS = {
    "forwarding rules": "rules of other programs drop forwarded packets that kube-proxy's rules accept earlier; before "
    "you switch to knft, add rules that accept Service traffic",
    "health check ports": "rules of other programs drop packets to healthCheckNodePorts that kube-proxy's rules accept "
    "earlier; before you switch to knft, add rules that accept these packets",
}
"""Warnings about expected differences that clients notice if other programs have rules on the node."""
_MAX_BLOCKING_RULES, _MAX_SERVICES = 10, 3
"""The most rules of other programs, and the most Services of each, that warnings name."""
_NFT_FAMILIES = ("ip ", "ip6 ", "inet ", "bridge ", "arp ", "netdev ")
_KNFT_TABLES = ("ip knft ", "ip6 knft ")


def compare(sides: Sides, progress: Progress = lambda _, __: None) -> Report:
    """Return the differences between both sides."""
    started = time.monotonic()
    families: list[FamilyReport] = []
    blocked: list[str] = []
    for version in (version for version in sides.left if version in sides.right):
        comparison, names = comparison_of(version, sides)
        files = _rule_files(version, sides)
        known = LocalAddresses(sides.node_addresses[version], sides.left[version].ipvs_addresses)
        families.append(
            summarise(version, comparison.counts, comparison.differences(progress), names, files, known=known)
        )
        blocked += _blocking_warnings(comparison, names, files)
    seconds = time.monotonic() - started
    warnings = [*sides.object_warnings, *sides.warnings, *_warnings(sides, families), *blocked]
    return Report(sides.left_name, sides.right_name, families, seconds=seconds, warnings=warnings, labels=sides.labels)


def _rule_files(version: IpVersion, sides: Sides) -> RuleFiles:
    def left(chain: str) -> str:
        is_nft = chain.startswith(_NFT_FAMILIES)
        tool = "ipvsadm" if chain == IPVS_CHAIN else "nft" if is_nft else SAVE_PROGRAMS[version]
        return sides.source_names.get(tool, sides.left_name)

    return RuleFiles(left, lambda chain: left(chain) if not chain.startswith(_KNFT_TABLES) else sides.right_name)


def comparison_of(version: IpVersion, sides: Sides) -> tuple[Comparison, ServiceNames]:
    """Return the comparison of one IP version, and the Services of the frontends."""
    kube_proxy, knft, node_addresses = sides.left[version], sides.right[version], sides.node_addresses[version]
    if version in sides.foreign:
        # Rules of other programs stay in the kernel with knft. Of base chains with equal priority, the kernel runs the
        # newest first, and knft's would be the newest.
        knft = join_rule_sets(knft, sides.foreign[version])
    is_ipvs = sides.mode is Mode.IPVS
    if is_ipvs:
        node_addresses = ranges((*node_addresses, *node_port_server_addresses(kube_proxy)))
    ipvs_addresses = kube_proxy.ipvs_addresses if is_ipvs else None
    classes = PacketClasses(version, MentionedValues((kube_proxy, knft)), node_addresses, ipvs_addresses=ipvs_addresses)
    expected = ExpectedDifferences(sides.mode, kube_proxy, knft)
    return Comparison(kube_proxy, knft, classes, node_addresses, expected), ServiceNames((knft, kube_proxy))


def _warnings(sides: Sides, families: Collection[FamilyReport]) -> Iterator[str]:
    if sides.difference_warning and any(family.counts.different for family in families):
        yield sides.difference_warning
    for version in sides.right.keys() - sides.left.keys():
        yield f"IPv{version} was not compared: pass kube-proxy's rules with --{SAVE_PROGRAMS[version]} or --nft-json"
    groups = [group for family in families for group in family.groups if group.reason is not None]
    for reason, warning in _HOST_RULE_WARNINGS.items():
        classes = sum(group.classes for group in groups if reason in str(group.reason))
        if classes and sides.foreign:
            yield f"{warning} ({classes} kinds of packets)"


def _blocking_warnings(comparison: Comparison, names: ServiceNames, files: RuleFiles) -> Iterator[str]:
    """Yield a warning for each rule of another program that blocks packets to Services on both sides."""
    found = []
    for rule, frontends in comparison.blocked.items():
        named = (names.name(address, protocol, port, is_local=own) for address, protocol, port, own in frontends)
        services = sorted({name for name in named if name is not None})
        if services:
            found.append((rule, services))
    found.sort(key=lambda item: (item[0].chain, item[0].line, item[0].text))
    for rule, services in found[:_MAX_BLOCKING_RULES]:
        listed = ", ".join(services[:_MAX_SERVICES]) + (" and more" if len(services) > _MAX_SERVICES else "")
        place = format_decision(DecidingRule(files.left(rule.chain), rule.chain, rule.line, rule.text))
        yield f"a rule of another program {rule.verb} packets to {listed} on both sides: {place}"
    if len(found) > _MAX_BLOCKING_RULES:
        yield f"{len(found) - _MAX_BLOCKING_RULES} more rules of other programs block packets to Services on both sides"
