"""The addresses of this node that accept NodePorts, for comparisons with conntrack entries."""

from collections.abc import Callable

from knft.config import Config
from knft.decide.stale_flows import packed_address
from knft.families import Family
from knft.model import addresses


def node_port_addresses(
    family: Family, config: Config, nodeport_ips: frozenset[str], local_addresses: Callable[[], frozenset[str]]
) -> frozenset[bytes]:
    """Return the packed addresses of one family that accept NodePorts.

    ``nodeport_ips`` are those that the rules contain. ``local_addresses`` returns the machine's addresses, which may
    all accept NodePorts, or raises KernelError.
    """
    if not config.nodeports_on_all_addresses(family):
        return frozenset(map(packed_address, nodeport_ips))
    local = addresses.of_family(local_addresses(), family)
    return frozenset(packed_address(address) for address in local if not addresses.is_loopback(address))
