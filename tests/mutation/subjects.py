"""The captures to mutate: the rules of kube-proxy in each mode, for one cluster and IP family."""

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from knft.cli.flags import sync_flag_defaults
from knft.cli.kube_proxy_options import iptables_settings, ipvs_settings, kube_proxy_options
from knft.cli.options import config_from_options
from knft.comparison.captures import Capture, read_capture
from knft.comparison.kube_proxy_inputs import ObjectSnapshots, interface_addresses, sync_inputs
from knft.comparison.rendered import knft_rules
from knft.comparison.sides import Sides
from knft.families import IpVersion
from knft.interpret.compare.foreign import foreign_rules
from knft.interpret.compare.services import ServiceNames
from knft.interpret.ranges import LOOPBACK, Ranges, ranges
from knft.interpret.rules import RuleSet
from knft.proxy_mode import Mode
from knft_compat import iptables, ipvs
from knft_compat import sync_input as compat
from knft_compat.captures import SimulatedOutput, captures_after_first_sync
from knft_compat.nftables import list_table
from knft_compat.nftables.expressions import Object
from tests.mutation.clusters import NODE_ADDRESSES, Cluster, generate_cluster
from tests.mutation.nftables_before_1_36 import list_ruleset


class MutationSubject(NamedTuple):
    """One IP family of a cluster, whose rules are mutated: the input of kube-proxy, and the rules of knft."""

    cluster: Cluster
    version: IpVersion
    sync_input: compat.SyncInput
    nft_input: compat.SyncInput
    """The input of mode nftables, whose NodePorts are on other addresses."""
    knft: RuleSet

    @property
    def name(self) -> str:
        """The cluster and the IP version, for messages."""
        return f"cluster {self.cluster.seed}, IPv{self.version}"

    def captures(self, mode: Mode) -> SimulatedOutput:
        """Return the captures of a node with kube-proxy in mode iptables or ipvs."""
        options = {**sync_flag_defaults(), **self.cluster.options, "family": None}
        if mode is Mode.IPTABLES:
            return captures_after_first_sync(iptables.sync(self.sync_input, iptables_settings(options)))
        return captures_after_first_sync(ipvs.sync(self.sync_input, ipvs_settings(options)))

    def nft_listing(self, *, by_chains: bool) -> list[Object]:
        """Return the nft listing of a node with kube-proxy in mode nftables, in one of its two layouts."""
        return list_ruleset(self.nft_input) if by_chains else list_table(self.nft_input)

    def sides(self, mode: Mode, texts: Capture) -> Sides:
        """Return a capture and the rules of knft as the two sides of ``knft diff``."""
        kube_proxy_rules, node_ranges = read_capture(texts)[self.version], self._node_ranges()
        version = self.version
        return Sides(
            mode=mode,
            left_name="kube-proxy",
            left={version: kube_proxy_rules},
            right={version: self.knft},
            node_addresses={version: node_ranges},
            foreign={version: foreign_rules(kube_proxy_rules, node_ranges)},
        )

    def service_names(self) -> ServiceNames:
        """Return the names of Services by frontend, from the rules of knft."""
        return ServiceNames((self.knft,))

    def _node_ranges(self) -> Ranges:
        addresses = (item for item in self.cluster.node_addresses if item.version == self.version)
        return ranges((*((int(item), int(item)) for item in addresses), *LOOPBACK[self.version]))


@cache
def subjects(seed: int) -> tuple[MutationSubject, ...]:
    """Return both families of the cluster of a seed."""
    return tuple(_subjects(seed))


def _subjects(seed: int) -> Iterator[MutationSubject]:
    cluster = generate_cluster(seed)
    rules = knft_rules(cluster.changes, config_from_options(cluster.options))
    options = kube_proxy_options(Mode.IPTABLES, cluster.options)
    assert set(interface_addresses(cluster.changes, options.config)) == set(NODE_ADDRESSES)
    nft_options = kube_proxy_options(Mode.NFTABLES, cluster.options)
    snapshots = ObjectSnapshots(cluster.changes, None)
    nft_inputs = dict(sync_inputs(snapshots, nft_options))
    for family, sync_input in sync_inputs(snapshots, options):
        yield MutationSubject(cluster, family.version, sync_input, nft_inputs[family], rules[family.version])
