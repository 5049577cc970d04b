"""Rule sets that nobody has loaded: knft's own and kube-proxy's, for the same objects."""

from collections.abc import Iterable
from ipaddress import ip_address
from typing import Any

from knft.cli.captured import Texts, rule_sets
from knft.cli.flags import defaults_of_syncs
from knft.cli.legacy_clusters import Objects, clusters_of, own_addresses
from knft.cli.legacy_options import iptables_settings, ipvs_settings
from knft.cli.options import config_from_options
from knft.config import Config
from knft.decide.frontends import Lost
from knft.interpret import nftables
from knft.interpret.compare.edit import with_collection
from knft.interpret.compare.meant_of_ipvs import CONTESTED
from knft.interpret.compare.meant_of_knft import ON_NODE
from knft.interpret.rules import Collection, Element, IpVersion, RuleSet
from knft.model.names import Family
from knft.model.objects import Change
from knft.nft.codec.listed_table import listed_table
from knft.render.layout import whole_table
from knft.sync.assemble import recorded_daemon, settled_states
from knft.sync.state import ServiceState
from knft_compat import iptables, ipvs
from knft_compat.saved import captures

_PROTOCOLS = {"TCP": 6, "UDP": 17, "SCTP": 132}
OF_FAMILY: dict[Family, IpVersion] = {Family.IPV4: 4, Family.IPV6: 6}


def own_rules(
    changes: tuple[Change, ...], config: Config, more_addresses: Iterable[str] = ()
) -> dict[IpVersion, RuleSet]:
    """Return knft's rule sets for some objects, on a node that has more addresses than its object says."""
    daemon, recorders = recorded_daemon(config)
    # --nodeport-addresses chooses from all that the machine has, as it does for kube-proxy.
    daemon.note_addresses(frozenset((*own_addresses(changes, config), *more_addresses)))
    daemon.handle(changes)
    daemon.sync()
    (states,) = settled_states(config, changes)
    found = {}
    for family, recorder in recorders.items():
        listed = listed_table(whole_table(*recorder.first_sync()))
        rules = nftables.read(listed, OF_FAMILY[family])
        for collection in (_contested(states[family]), _on_node(states[family])):
            rules = with_collection(rules, collection)
        found[OF_FAMILY[family]] = rules
    return found


def _contested(state: ServiceState) -> Collection:
    """Return the frontends that several Services claim."""
    return Collection(CONTESTED, tuple(Element(key) for key in sorted({_key(lost) for lost in state.lost()})))


def _on_node(state: ServiceState) -> Collection:
    """Return the addresses of endpoints on the node."""
    listed = (endpoint for name in state.service_ports() for endpoint in state.endpoints(name) if endpoint.is_local)
    addresses = {int(ip_address(endpoint.address)) for endpoint in listed}
    return Collection(ON_NODE, tuple(Element((address,)) for address in sorted(addresses)))


def _key(lost: Lost) -> tuple[int, ...]:
    frontend = lost.frontend
    address = () if frontend.address is None else (int(ip_address(frontend.address)),)
    return (*address, _PROTOCOLS[frontend.protocol], frontend.port)


def legacy_rules(mode: str, changes: tuple[Change, ...], options: dict[str, Any]) -> dict[IpVersion, RuleSet]:
    """Return kube-proxy's rule sets for the same objects, in mode iptables or ipvs; raise UsageError, naming a flag."""
    options = {**defaults_of_syncs(), **options}
    # The mode's own default is every address, and one of its words is none of nftables' (I.5).
    config = config_from_options({**options, "nodeport_addresses": ()})
    make: Any = iptables.sync if mode == "iptables" else ipvs.sync
    settings: Any = iptables_settings(options) if mode == "iptables" else ipvs_settings(options)
    found: dict[IpVersion, RuleSet] = {}
    for family, cluster in clusters_of(Objects(changes, None), config, options):
        version = OF_FAMILY[family]
        saved = captures(make(cluster, settings))
        texts = Texts({version: saved.rules}, saved.sets, saved.servers, bound=saved.bound)
        found |= rule_sets(texts)
    return found
