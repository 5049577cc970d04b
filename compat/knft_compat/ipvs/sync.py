"""A sync of the IPVS mode; the parts are in kube-proxy's order (docs/behaviour/ipvs.md#sync-order)."""

from collections.abc import Iterable

from msgspec.structs import replace

from knft.model import addresses
from knft_compat.ipvs.chains import JUMPS, EnsureChains, chains_to_create
from knft_compat.ipvs.claims import bound_addresses, claims, usable_addresses
from knft_compat.ipvs.conntrack import conntrack_deletions
from knft_compat.ipvs.device import BindAddresses, EnsureDevice, UnbindAddresses
from knft_compat.ipvs.entries import SetEntries, filled_sets, set_entries
from knft_compat.ipvs.preconditions import preconditions
from knft_compat.ipvs.restore import restore_input
from knft_compat.ipvs.rule_versions import FEATURES, Features
from knft_compat.ipvs.servers import StaleServers, VirtualServers, stale_servers, terminated_servers, virtual_servers
from knft_compat.ipvs.settings import Settings
from knft_compat.ipvs.sysctls import sysctls, timeouts
from knft_compat.jumps import EnsureJumps
from knft_compat.sync_input import Node, SyncInput
from knft_compat.sync_output import SyncOutput, ToolInput


def sync(sync_input: SyncInput, settings: Settings) -> SyncOutput:
    """Return the output of a sync, including what kube-proxy does once at its start.

    Without ``sync_input.previous_ports`` it is the first sync.
    """
    features, family = FEATURES[settings.rule_version], sync_input.family
    sync_input = replace(sync_input, node=_node_without_bound_addresses(sync_input.node, settings, features))
    all_claims = tuple(claims(sync_input, features))
    entries = set_entries(sync_input, features)
    previous_entries = _previous_entries(sync_input, features)
    servers = virtual_servers(all_claims, settings, features, is_first_sync=sync_input.previous_ports is None)
    wanted_addresses, existing_addresses = (
        bound_addresses(all_claims),
        usable_addresses(settings.existing_addresses or (), family),
    )
    stale = stale_servers(servers, family, settings)
    wanted_set, existing_set = frozenset(wanted_addresses), frozenset(existing_addresses)
    stale_addresses = [address for address in existing_addresses if address not in wanted_set]
    if features.unbinds_only_server_addresses:
        deleted_addresses = frozenset(server.address for server in stale)
        stale_addresses = [address for address in stale_addresses if address in deleted_addresses]
    removal: tuple[ToolInput, ToolInput] = (UnbindAddresses(_networks(stale_addresses)), StaleServers(stale))
    return SyncOutput(
        "ipvs",
        family,
        (
            preconditions(settings, features),
            sysctls(settings),
            timeouts(settings),
            EnsureChains(family, chains_to_create(settings.rule_version)),
            EnsureJumps(family, JUMPS[settings.rule_version]),
            EnsureDevice(),
            filled_sets(sync_input, entries, previous_entries),
            VirtualServers(servers),
            BindAddresses(_networks([address for address in wanted_addresses if address not in existing_set])),
            restore_input(sync_input, entries, settings.rule_version),
            *(reversed(removal) if features.unbinds_only_server_addresses else removal),
            terminated_servers(servers, settings),
            conntrack_deletions(sync_input, features.conntrack_cleanup),
        ),
        entries.warnings,
    )


def _node_without_bound_addresses(node: Node, settings: Settings, features: Features) -> Node:
    if node.nodeport_cidrs or not features.skips_node_ports_on_bound_addresses:
        return node
    bound = frozenset(settings.existing_addresses or ())
    return replace(node, local_addresses=tuple(address for address in node.local_addresses if address not in bound))


def _previous_entries(sync_input: SyncInput, features: Features) -> SetEntries | None:
    if sync_input.previous_ports is None:
        return None
    return set_entries(replace(sync_input, ports=sync_input.previous_ports), features)


def _networks(hosts: Iterable[str]) -> tuple[str, ...]:
    return tuple(addresses.as_network(address) for address in hosts)
