"""What is mutated: a cluster's rules in one family, as a node with kube-proxy in one of its modes would show them."""

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from knft.cli.captured import Texts, rule_sets
from knft.cli.flags import defaults_of_syncs
from knft.cli.legacy_clusters import Objects, clusters_of, own_addresses
from knft.cli.legacy_options import iptables_settings, ipvs_settings
from knft.cli.options import config_from_options
from knft.cli.rendered import OF_FAMILY, own_rules
from knft.cli.sides import Sides
from knft.interpret.compare.foreign import foreign
from knft.interpret.compare.services import ServiceNames
from knft.interpret.ranges import LOOPBACK, Ranges, ranges
from knft.interpret.rules import IpVersion, RuleSet
from knft.takeover.names import Mode
from knft_compat import cluster as compat
from knft_compat import iptables, ipvs
from knft_compat.saved import Captures, captures
from tests.interpret.mutation.clusters import NODE_ADDRESSES, Cluster, cluster
from tests.interpret.mutation.listing import Object, listing


class Subject(NamedTuple):
    """One family of a cluster: what kube-proxy is told, and knft's rules."""

    cluster: Cluster
    version: IpVersion
    legacy: compat.Cluster
    knft: RuleSet

    @property
    def name(self) -> str:
        """The subject, for messages."""
        return f"cluster {self.cluster.seed}, IPv{self.version}"

    def saved(self, mode: Mode) -> Captures:
        """Return what the tools print where kube-proxy is in one of its older modes."""
        options = {**defaults_of_syncs(), **self.cluster.options, "family": None}
        if mode is Mode.IPTABLES:
            return captures(iptables.sync(self.legacy, iptables_settings(options)))
        return captures(ipvs.sync(self.legacy, ipvs_settings(options)))

    def listed(self, *, by_chains: bool) -> list[Object]:
        """Return what nft lists where it is in mode nftables, in one of its two layouts."""
        flags: tuple[str, ...] = self.cluster.options["service_cidr"]
        cidrs = tuple(cidr for flag in flags for cidr in flag.split(","))
        return listing(self.legacy, cidrs, by_chains=by_chains)

    def sides(self, mode: Mode, texts: Texts) -> Sides:
        """Return a capture and knft, as ``knft diff`` holds them against each other."""
        left, own = rule_sets(texts)[self.version], self._own()
        version = self.version
        return Sides(
            mode=mode,
            name="kube-proxy",
            kube_proxy={version: left},
            knft={version: self.knft},
            own={version: own},
            foreign={version: foreign(left, own)},
        )

    def names(self) -> ServiceNames:
        """Return who is who, as knft says."""
        return ServiceNames((self.knft,))

    def _own(self) -> Ranges:
        addresses = (item for item in self.cluster.own if item.version == self.version)
        return ranges((*((int(item), int(item)) for item in addresses), *LOOPBACK[self.version]))


@cache
def subjects(seed: int) -> tuple[Subject, ...]:
    """Return both families of the cluster of a seed."""
    return tuple(_subjects(seed))


def _subjects(seed: int) -> Iterator[Subject]:
    found = cluster(seed)
    rules = own_rules(found.changes, config_from_options(found.options))
    options = {**defaults_of_syncs(), **found.options, "family": None}
    # As knft.cli.rendered does: the older modes know more words than knft.
    config = config_from_options({**options, "nodeport_addresses": ()})
    assert set(own_addresses(found.changes, config)) == set(NODE_ADDRESSES)
    for family, legacy in clusters_of(Objects(found.changes, None), config, options):
        yield Subject(found, OF_FAMILY[family], legacy, rules[OF_FAMILY[family]])
