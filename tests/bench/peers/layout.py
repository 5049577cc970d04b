"""The interface of layouts, and the names that kube-proxy generates."""

import hashlib
from base64 import b32encode
from collections.abc import Iterable, Iterator
from typing import Protocol

from msgspec import Struct

from tests.bench.changes import Step
from tests.bench.cluster import NAMESPACE, ServiceSpec, endpoint_address

MARK = "0x00004000"


class Transactions(Struct, frozen=True):
    """The transactions of a step: ``now`` is the sync, ``later`` removes what kube-proxy removes a second later."""

    now: str
    later: str = ""


class Layout(Protocol):
    """A layout of rules; it may keep what it has written."""

    def load(self, services: Iterable[ServiceSpec]) -> Iterator[str]:
        """Yield the lines of a first sync."""

    def change(self, step: Step) -> Transactions:
        """Return the sync after a step, like kube-proxy's partial sync."""


def port_text(service: ServiceSpec) -> str:
    """Return the name of a Service port in comments; this and the next functions take a Service with one port."""
    return f"{NAMESPACE}/{service.name}:{service.port.name}"


def digest(text: str, length: int) -> str:
    """Return the beginning of a hash in base 32."""
    return b32encode(hashlib.sha256(text.encode()).digest()).decode()[:length]


def service_suffix(service: ServiceSpec) -> str:
    """Return the suffix of the names of a Service port's chains in nftables mode."""
    base = f"{NAMESPACE}/{service.name}/tcp/{service.port.name}"
    return f"{digest(base, 8)}-{base}"


def endpoint_suffix(service: ServiceSpec, endpoint: int) -> str:
    """Return the suffix for one endpoint of a Service port."""
    port, address = service.port, endpoint_address(endpoint)
    base = f"{NAMESPACE}/{service.name}/tcp/{port.name}__{address}/{port.target}"
    return f"{digest(base, 8)}-{base}"
