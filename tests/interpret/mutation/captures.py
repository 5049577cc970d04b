"""Clusters as nodes would show them: kube-proxy's captures of a mode, and knft's rules for the same objects."""

from functools import cache
from typing import NamedTuple

from knft.cli.captured import SAVE_PROGRAMS, Texts
from knft.cli.diff import Sides, _own, compare
from knft.cli.captured import rule_sets
from knft.cli.flags import defaults_of_syncs
from knft.cli.legacy_clusters import Objects, clusters_of, own_addresses
from knft.cli.legacy_options import iptables_settings, ipvs_settings
from knft.cli.options import config_from_options
from knft.cli.rendered import OF_FAMILY, own_rules
from knft.interpret.compare.report import FamilyReport, Group
from knft.interpret.ranges import Ranges
from knft.interpret.rules import IpVersion, RuleSet
from knft.takeover.names import Mode
from knft_compat import cluster as compat
from knft_compat import iptables, ipvs
from knft_compat.saved import Captures, captures
from tests.interpret.mutation.clusters import Cluster, cluster


class Subject(NamedTuple):
    """One family of a cluster: what kube-proxy would be told, knft's rules, and the node's addresses."""

    cluster: Cluster
    version: IpVersion
    legacy: compat.Cluster
    knft: RuleSet
    own: Ranges


@cache
def subjects(seed: int) -> tuple[Subject, ...]:
    """Return both families of a cluster."""
    found = cluster(seed)
    config = config_from_options(found.options)
    rules = own_rules(found.changes, config)
    addresses = own_addresses(found.changes, config)
    options = {**defaults_of_syncs(), **found.options, "family": None}
    # As knft.cli.rendered does: these modes know more words than knft.
    clusters = clusters_of(Objects(found.changes, None), config_from_options({**options, "nodeport_addresses": ()}), options)
    return tuple(
        Subject(found, OF_FAMILY[family], legacy, rules[OF_FAMILY[family]], _own(addresses, OF_FAMILY[family]))
        for family, legacy in clusters
    )


@cache
def captured(subject: int, version: IpVersion, mode: Mode) -> Captures:
    """Return what the tools print on a node with kube-proxy in one of its older modes."""
    found = next(item for item in subjects(subject) if item.version == version)
    options = {**defaults_of_syncs(), **found.cluster.options, "family": None}
    if mode is Mode.IPTABLES:
        return captures(iptables.sync(found.legacy, iptables_settings(options)))
    return captures(ipvs.sync(found.legacy, ipvs_settings(options)))


def report(subject: Subject, mode: Mode, texts: Texts) -> FamilyReport:
    """Return what ``knft diff`` says of a capture."""
    left = rule_sets(texts)[subject.version]
    version = subject.version
    sides = Sides(
        mode, SAVE_PROGRAMS[version], {version: left}, {version: subject.knft}, {version: subject.own}, captured=True
    )
    (found,) = compare(sides, lambda _, __: None).families
    return found


Said = tuple[str, str, str]


def unexplained(found: FamilyReport) -> dict[Said, Group]:
    """Return the groups of a report that no intended difference accounts for."""
    return {(group.cause, group.service, group.sentence): group for group in found.groups if group.intent is None}
