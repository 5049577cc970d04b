"""A sync of the IPVS mode, part by part in kube-proxy's order (E.4)."""

from collections.abc import Iterable

from msgspec.structs import replace

from knft.errors import UsageError
from knft.model import addresses
from knft_compat.cluster import Cluster, Node
from knft_compat.ipvs.chains import JUMPS, EnsureChains, ensured
from knft_compat.ipvs.claims import bound_addresses, claims, counting
from knft_compat.ipvs.conntrack import conntrack
from knft_compat.ipvs.device import BindAddresses, EnsureDevice, UnbindAddresses
from knft_compat.ipvs.entries import Entries, entries, filled_sets
from knft_compat.ipvs.preconditions import preconditions
from knft_compat.ipvs.restore import restore
from knft_compat.ipvs.servers import StaleServers, VirtualServers, stale_servers, virtual_servers
from knft_compat.ipvs.settings import Settings
from knft_compat.ipvs.sysctls import sysctls, timeouts
from knft_compat.ipvs.vintages import FEATURES, Features
from knft_compat.jumps import EnsureJumps
from knft_compat.page import Page, Part


def sync(cluster: Cluster, settings: Settings) -> Page:
    """Return what a sync hands to the kernel, and what kube-proxy does once before its first.

    Raises UsageError where a Service cannot be expressed. Without ``cluster.before`` it is the first sync.
    """
    features, family = FEATURES[settings.vintage], cluster.family
    cluster = replace(cluster, node=_node(cluster.node, settings, features))
    found = tuple(claims(cluster, features))
    wanted = entries(cluster, features)
    before = _entries_before(cluster, features)
    servers = virtual_servers(found, settings, features, first=cluster.before is None)
    active, bound = bound_addresses(found), counting(settings.bound or (), family)
    stale = stale_servers(servers, family, settings)
    wanted_bound, has_bound = frozenset(active), frozenset(bound)
    superfluous = [address for address in bound if address not in wanted_bound]
    if features.unbinds_with_servers:
        left = frozenset(server.address for server in stale)
        superfluous = [address for address in superfluous if address in left]
    removal: tuple[Part, Part] = (UnbindAddresses(_networks(superfluous)), StaleServers(stale))
    return Page(
        "ipvs",
        family,
        (
            preconditions(settings, features),
            sysctls(settings),
            timeouts(settings),
            EnsureChains(family, ensured(settings.vintage)),
            EnsureJumps(family, JUMPS[settings.vintage]),
            EnsureDevice(),
            filled_sets(cluster, wanted, before),
            VirtualServers(servers),
            BindAddresses(_networks([address for address in active if address not in has_bound])),
            restore(cluster, wanted, settings.vintage),
            *(reversed(removal) if features.unbinds_with_servers else removal),
            conntrack(cluster, features.forgetting),
        ),
    )


def _node(node: Node, settings: Settings, features: Features) -> Node:
    if node.nodeport_cidrs or not features.passes_over_bound:
        return node
    bound = frozenset(settings.bound or ())
    return replace(node, local_addresses=tuple(address for address in node.local_addresses if address not in bound))


def _entries_before(cluster: Cluster, features: Features) -> Entries | None:
    if cluster.before is None:
        return None
    try:
        return entries(replace(cluster, ports=cluster.before), features)
    except UsageError as error:
        msg = f"in the sync before: {error}"
        raise UsageError(msg) from error


def _networks(of: Iterable[str]) -> tuple[str, ...]:
    return tuple(addresses.as_network(address) for address in of)
