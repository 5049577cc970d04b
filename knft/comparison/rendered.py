"""Renders rule sets without loading them: knft's and kube-proxy's, for the same objects."""

import json
from collections.abc import Iterable, Iterator
from ipaddress import ip_address
from typing import NamedTuple

from knft.comparison.captures import Capture, Rules, read_capture
from knft.comparison.kube_proxy_inputs import KubeProxyOptions, ObjectSnapshots, interface_addresses, sync_inputs
from knft.config import Config
from knft.decide.frontends import LosingClaim
from knft.families import Family
from knft.interpret import nftables
from knft.interpret.compare.edit import with_collection
from knft.interpret.compare.expected_differences.ipvs_edits import CONTESTED_FRONTENDS
from knft.interpret.compare.expected_differences.knft_edits import NODE_ENDPOINTS
from knft.interpret.rules import Collection, Element
from knft.model.objects import ObjectChange
from knft.nft.codec.listed_table import listed_table
from knft.protocols import NFT_PROTOCOLS, PROTOCOL_NUMBERS
from knft.render.layout import whole_table
from knft.sync.assemble import rendering_daemon
from knft.sync.state import ServiceState
from knft_compat import iptables, ipvs
from knft_compat import nftables as kube_proxy_nftables
from knft_compat.captures import captures_after_first_sync
from knft_compat.sync_input import SyncInput
from knft_compat.sync_output import SyncOutput


class RenderedNode(NamedTuple):
    """knft's rule sets on a node by IP version, and the objects as knft tracks them, by family."""

    rules: Rules
    states: dict[Family, ServiceState]

    def losing_claims(self) -> Iterator[LosingClaim]:
        """Yield the claims of both families to frontends that another Service owns."""
        for state in self.states.values():
            yield from state.losing_claims()


def knft_rules(changes: tuple[ObjectChange, ...], config: Config, local_addresses: Iterable[str] = ()) -> Rules:
    """Return knft's rule sets on a node that has ``local_addresses`` in addition to those of its Node object."""
    return render_node(changes, config, local_addresses).rules


def render_node(changes: tuple[ObjectChange, ...], config: Config, local_addresses: Iterable[str] = ()) -> RenderedNode:
    """Return the rules and objects of a node that has ``local_addresses`` besides those of its Node object."""
    return render_with_addresses(changes, config, (*interface_addresses(changes, config), *local_addresses))


def render_with_addresses(changes: tuple[ObjectChange, ...], config: Config, addresses: Iterable[str]) -> RenderedNode:
    """Return the rules and objects of a node whose interfaces have ``addresses``."""
    daemon, recorders = rendering_daemon(config)
    # --nodeport-addresses selects from all addresses of the node, as in kube-proxy.
    daemon.update_local_addresses(frozenset(addresses))
    daemon.handle(changes)
    daemon.sync()
    found = {}
    for family, recorder in recorders.items():
        listed = listed_table(whole_table(*recorder.first_sync()))
        rules = nftables.read(listed, family.version)
        state = daemon.states[family]
        for collection in (_contested_frontends(state), _local_endpoints(state)):
            rules = with_collection(rules, collection)
        found[family.version] = rules
    return RenderedNode(found, daemon.states)


def _contested_frontends(state: ServiceState) -> Collection:
    """Return the frontends that several Services claim, with the claiming Service ports as comments."""
    claimants: dict[tuple[int, ...], set[str]] = {}
    for claim in state.losing_claims():
        claimants.setdefault(_frontend_key(claim), set()).update((str(claim.owner), str(claim.loser)))
    elements = (Element(key, comment=" ".join(sorted(names))) for key, names in sorted(claimants.items()))
    return Collection(CONTESTED_FRONTENDS, tuple(elements))


def _local_endpoints(state: ServiceState) -> Collection:
    """Return the addresses of endpoints on the node."""
    listed = (endpoint for name in state.service_ports() for endpoint in state.endpoints(name) if endpoint.is_local)
    addresses = {int(ip_address(endpoint.address)) for endpoint in listed}
    return Collection(NODE_ENDPOINTS, tuple(Element((address,)) for address in sorted(addresses)))


def _frontend_key(claim: LosingClaim) -> tuple[int, ...]:
    frontend = claim.frontend
    address = () if frontend.address is None else (int(ip_address(frontend.address)),)
    return (*address, PROTOCOL_NUMBERS[NFT_PROTOCOLS[frontend.protocol]], frontend.port)


class RenderedRules(NamedTuple):
    """Rule sets by IP version, and warnings about frontends that they do not serve."""

    rules: Rules
    warnings: tuple[str, ...]


def kube_proxy_rules(changes: tuple[ObjectChange, ...], options: KubeProxyOptions) -> RenderedRules:
    """Return kube-proxy's rule sets, in the mode whose settings ``options`` hold; raise UsageError naming a flag."""
    found: Rules = {}
    warnings: list[str] = []
    for family, sync_input in sync_inputs(ObjectSnapshots(changes, None), options):
        if isinstance(options.settings, kube_proxy_nftables.Settings):
            listed = json.dumps({"nftables": kube_proxy_nftables.list_table(sync_input)})
            found[family.version] = nftables.read(listed.encode(), family.version)
            continue
        output = _sync(sync_input, options.settings)
        warnings += output.warnings
        saved = captures_after_first_sync(output)
        capture = Capture(
            {family.version: saved.rules}, saved.sets, saved.servers, ipvs_addresses=saved.bound_addresses
        )
        found |= read_capture(capture)
    return RenderedRules(found, tuple(warnings))


def _sync(sync_input: SyncInput, settings: iptables.Settings | ipvs.Settings) -> SyncOutput:
    return (
        iptables.sync(sync_input, settings)
        if isinstance(settings, iptables.Settings)
        else ipvs.sync(sync_input, settings)
    )
