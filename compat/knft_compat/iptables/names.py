"""Names of the mode's chains (docs/behaviour/iptables.md#chain-names)."""

import base64
import hashlib
from functools import lru_cache

from msgspec import Struct

from knft.model.names import ServicePortName

EXTERNAL_SERVICES = "KUBE-EXTERNAL-SERVICES"
NODE_PORTS = "KUBE-NODEPORTS"
CANARY = "KUBE-PROXY-CANARY"
KUBELET_FIREWALL = "KUBE-FIREWALL"
"""The kubelet's chain; kube-proxy adds a rule to the chain, and never removes the chain."""

_CLUSTER, _LOCAL, _EXTERNAL, _FIREWALL, _ENDPOINT = "KUBE-SVC-", "KUBE-SVL-", "KUBE-EXT-", "KUBE-FW-", "KUBE-SEP-"
_PREFIXES = (_CLUSTER, _LOCAL, _EXTERNAL, _FIREWALL, _ENDPOINT)
_HASHED_BYTES = 10  # 16 characters in base32


class PortChains(Struct, frozen=True):
    """The names of a Service port's chains, except those of its endpoints."""

    cluster: str
    local: str
    external: str
    firewall: str


def port_chains(name: ServicePortName) -> PortChains:
    """Return the names of a Service port's chains; all contain the same hash."""
    hashed = _chain_hash(f"{name}{name.protocol.lower()}")
    return PortChains(_CLUSTER + hashed, _LOCAL + hashed, _EXTERNAL + hashed, _FIREWALL + hashed)


# Cached, since the rules of a Service port use the name of each endpoint's chain several times.
@lru_cache(maxsize=1 << 12)
def endpoint_chain(name: ServicePortName, key: str) -> str:
    """Return the chain name of the endpoint ``key`` (``ip:port``) of a Service port."""
    return _ENDPOINT + _chain_hash(f"{name}{name.protocol.lower()}{key}")


def is_service_port_chain(chain: str) -> bool:
    """Return whether a chain of the nat table belongs to a Service port, and so can become stale."""
    return chain.startswith(_PREFIXES)


def _chain_hash(text: str) -> str:
    return base64.b32encode(hashlib.sha256(text.encode()).digest()[:_HASHED_BYTES]).decode()
