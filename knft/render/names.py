"""The names of knft's table and of its objects that rules and elements refer to."""

TABLE = "knft"
COMMENT = "Kubernetes Services, managed by knft"

SERVICE_IPS = "service-ips"
SERVICE_NODEPORTS = "service-nodeports"
NO_ENDPOINT_SERVICES = "no-endpoint-services"
NO_ENDPOINT_NODEPORTS = "no-endpoint-nodeports"
CLUSTER_IPS = "cluster-ips"
NODEPORT_IPS = "nodeport-ips"
SERVICE_CIDRS = "service-cidrs"
HAIRPIN = "hairpin-connections"
POD_CIDRS = "pod-cidrs"
INSIDE_CIDRS = "inside-cidrs"
"""Sources inside the cluster, which are not masqueraded when they connect to a cluster IP: the pod CIDR, or any address
if it is unknown. This set and ``pod-cidrs`` stay empty if the configuration contains the CIDR: the rules contain it."""
NODE_SETS = frozenset({NODEPORT_IPS, SERVICE_CIDRS, POD_CIDRS, INSIDE_CIDRS})
"""The sets that hold the node's elements; Service ports have none in them."""
SOURCE_RESTRICTED_FRONTENDS = "guarded-frontends"
"""Load balancer VIPs of Services with loadBalancerSourceRanges, called guarded frontends in the kernel's table."""
SOURCE_RANGES = "source-ranges"

CLIENTS = "affinity-clients"
"""Clients of Service ports with session affinity, each with the ID of its endpoint."""

EARLIER_STICKY_PORTS, EARLIER_STICKY_ENDPOINTS, EARLIER_AFFINITY = "sticky-ports", "sticky-endpoints", "affinity"
"""The containers in which earlier versions of knft have session affinity."""

SOURCE_RANGE_CHAINS = "source-range-chains"
WIDE_PREFIX = "wide-"
WIDE_MAP_PREFIX, WIDE_IDS = "wide-endpoints-", "wide-endpoint-ids"
EARLIER_STICKY_PREFIX = "sticky-"
HASHED_MAP_PREFIX = "hashed-endpoints-"
"""The beginning of the names of the maps of tables (``knft.render.hashing``)."""
NUMBERS_MAP_PREFIXES = ("hashed-numbers-", "hashed-nodeport-numbers-")
OWNED_CHAIN_PREFIXES = (EARLIER_STICKY_PREFIX, WIDE_PREFIX, "in-flight")
"""The beginnings of the names of chains that belong to one Service port, and of those that only earlier versions have:
a sync deletes them if no Service port needs them."""

REJECT_CHAIN = "reject-chain"
LOCALHOST_REJECTS = "localhost-nodeport-reject-ports"
LOCALHOST_REJECT_PREFIX = "localhost-nodeport-reject-"
"""The beginning of the names of the chains to which this map leads."""
RESET_PREFIX = "reset-or-"
"""The beginning of the names of ``ResetChain``."""
FILTER_FORWARD = "filter-forward"

CONNECTIONS, NODEPORT_CONNECTIONS = "service-connections", "nodeport-connections"
"""Frontends with the number of new connections (``knft.render.counters``)."""
REJECTED, NODEPORT_REJECTED = "rejected-service-connections", "rejected-nodeport-connections"
DROPPED, NODEPORT_DROPPED = "dropped-service-connections", "dropped-nodeport-connections"
REJECTED_SERVICES, REJECTED_NODEPORTS = "rejected-services", "rejected-nodeports"
DROPPED_SERVICES, DROPPED_NODEPORTS = "dropped-services", "dropped-nodeports"
"""Chains that count a packet and then reject or drop it."""
COUNTING_CHAINS = (REJECTED_SERVICES, REJECTED_NODEPORTS, DROPPED_SERVICES, DROPPED_NODEPORTS)
COUNTER_SETS = frozenset({CONNECTIONS, NODEPORT_CONNECTIONS, REJECTED, NODEPORT_REJECTED, DROPPED, NODEPORT_DROPPED})
"""The sets whose elements count connections; they exist only with ``--service-counters``."""


def endpoint_ids_map(endpoint_map: str) -> str:
    """Return the name of the map with the IDs of the endpoints in an endpoint map."""
    return WIDE_IDS if endpoint_map.startswith(WIDE_MAP_PREFIX) else endpoint_map.replace("endpoints-", "endpoint-ids-")


def numbers_map(protocol: str, *, nodeport: bool) -> str:
    """Return the name of the map with the numbers of the Service ports whose clients are hashed, by frontend."""
    return f"{NUMBERS_MAP_PREFIXES[nodeport]}{protocol}"


def is_ids_map(name: str) -> bool:
    """Tell whether a map has endpoint IDs."""
    return "endpoint-ids" in name
