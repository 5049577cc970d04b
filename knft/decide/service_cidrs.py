"""Finds Service CIDRs that contain addresses of the node or of pods (docs/behaviour/node.md#service-cidrs).

knft drops new connections to addresses in a Service CIDR that no Service has.
"""

from collections.abc import Iterable, Iterator, Sequence

from knft.config import Config
from knft.families import Family
from knft.model import addresses
from knft.model.objects import Node


def find_conflicts(
    cidrs: Iterable[str],
    family: Family,
    config: Config,
    *,
    node: Node | None,
    node_ip: str | None,
    local_addresses: Iterable[str],
) -> dict[str, str]:
    """Return the CIDRs of ``family`` that contain addresses of the node or of pods, with descriptions of the conflicts.

    ``node_ip`` is the node's address. If there is none, a CIDR conflicts that contains all ``local_addresses`` of the
    machine's interfaces. Some may be cluster IPs, such as that of a DNS cache or those of kube-proxy's kube-ipvs0.
    """
    own = [node_ip] if node_ip is not None else sorted(addresses.reachable_addresses(local_addresses, family))
    listed = node.spec.pod_cidrs if node is not None and node.spec is not None else None
    pod_cidrs = addresses.networks_of_family(listed or (), family)
    cluster_cidr = config.cluster_cidr(family)
    return {
        cidr: conflict
        for cidr in addresses.networks_of_family(cidrs, family)
        if (conflict := next(_conflicts(cidr, own, pod_cidrs, cluster_cidr), ""))
    }


def _conflicts(cidr: str, own: Sequence[str], pod_cidrs: Iterable[str], cluster_cidr: str | None) -> Iterator[str]:
    if own and all(addresses.contains(cidr, address) for address in own):
        yield f"contains the node's address {own[0]}"
    yield from (f"overlaps the node's pod CIDR {pods}" for pods in pod_cidrs if addresses.overlaps(cidr, pods))
    # The cluster CIDR may contain the Service CIDR: kube-controller-manager then gives nodes no pod CIDR in it.
    if cluster_cidr is not None and addresses.contains_network(cidr, cluster_cidr):
        yield f"contains the cluster CIDR {cluster_cidr}"
