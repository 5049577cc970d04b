"""Names of the mode's chains (D.2)."""

import base64
import hashlib
from functools import lru_cache

from msgspec import Struct

from knft.model.names import ServicePortName

EXTERNAL_SERVICES = "KUBE-EXTERNAL-SERVICES"
NODE_PORTS = "KUBE-NODEPORTS"
CANARY = "KUBE-PROXY-CANARY"
KUBELET_FIREWALL = "KUBE-FIREWALL"
"""The kubelet's own chain, which kube-proxy fills as well, and never removes."""

_CLUSTER, _LOCAL, _EXTERNAL, _FIREWALL, _ENDPOINT = "KUBE-SVC-", "KUBE-SVL-", "KUBE-EXT-", "KUBE-FW-", "KUBE-SEP-"
_PREFIXES = (_CLUSTER, _LOCAL, _EXTERNAL, _FIREWALL, _ENDPOINT)
_HASHED_BYTES = 10  # of which base32 makes 16 characters


class PortChains(Struct, frozen=True):
    """The chains that a Service port may have, but those of its endpoints."""

    cluster: str
    local: str
    external: str
    firewall: str


def port_chains(name: ServicePortName) -> PortChains:
    """Return the names of a Service port's chains; all have the same hash."""
    hashed = _hash(f"{name}{name.protocol.lower()}")
    return PortChains(_CLUSTER + hashed, _LOCAL + hashed, _EXTERNAL + hashed, _FIREWALL + hashed)


# The rules of a Service port name each endpoint's chain several times, one after another.
@lru_cache(maxsize=1 << 12)
def endpoint_chain(name: ServicePortName, key: str) -> str:
    """Return the name of the chain of one endpoint, ``ip:port``, of a Service port."""
    return _ENDPOINT + _hash(f"{name}{name.protocol.lower()}{key}")


def is_service_chain(chain: str) -> bool:
    """Tell whether a chain of the nat table is some Service port's, and so one that can go stale."""
    return chain.startswith(_PREFIXES)


def _hash(text: str) -> str:
    return base64.b32encode(hashlib.sha256(text.encode()).digest()[:_HASHED_BYTES]).decode()
