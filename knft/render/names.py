"""The names of knft's table and of everything in it that rules and elements refer to."""

from knft.model.names import Family, Protocol
from knft.nft import objects as nft

TABLE = "knft"
COMMENT = "Kubernetes Services, kept by knft"

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
NODE_SETS = frozenset({NODEPORT_IPS, SERVICE_CIDRS, POD_CIDRS, INSIDE_CIDRS})
"""What is in these is the node's, and no Service's."""
GUARDED_FRONTENDS = "guarded-frontends"
SOURCE_RANGES = "source-ranges"

STICKY_PORTS = "sticky-ports"
STICKY_ENDPOINTS = "sticky-endpoints"
STICKY_PREFIX = "sticky-"
AFFINITY = "affinity"

REJECT_CHAIN = "reject-chain"

NFT_FAMILIES: dict[Family, nft.Family] = {Family.IPV4: "ip", Family.IPV6: "ip6"}
NFT_PROTOCOLS: dict[Protocol, str] = {"TCP": "tcp", "UDP": "udp", "SCTP": "sctp"}
