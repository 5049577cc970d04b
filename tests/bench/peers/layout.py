"""What every layout can say, and the names that kube-proxy gives."""

import hashlib
from base64 import b32encode
from collections.abc import Iterable, Iterator
from typing import Protocol

from msgspec import Struct

from tests.bench.changes import Step
from tests.bench.cluster import NAMESPACE, PORT_NAME, TARGET_PORT, ServiceSpec, endpoint_address

MARK = "0x00004000"


class Transactions(Struct, frozen=True):
    """What a step means: ``now`` is the sync, ``later`` removes what kube-proxy removes a second after it."""

    now: str
    later: str = ""


class Layout(Protocol):
    """One way to write a cluster down; it may remember what it has written."""

    def load(self, services: Iterable[ServiceSpec]) -> Iterator[str]:
        """Return the lines of a first sync."""

    def change(self, step: Step) -> Transactions:
        """Return the sync after a step, as kube-proxy's partial sync has it."""


def port_text(service: ServiceSpec) -> str:
    """Return a Service port as comments have it."""
    return f"{NAMESPACE}/{service.name}:{PORT_NAME}"


def digest(text: str, length: int) -> str:
    """Return the beginning of a hash, in the alphabet that names are made of."""
    return b32encode(hashlib.sha256(text.encode()).digest()).decode()[:length]


def service_suffix(service: ServiceSpec) -> str:
    """Return what the names of a Service port's chains have in common in nftables mode."""
    base = f"{NAMESPACE}/{service.name}/tcp/{PORT_NAME}"
    return f"{digest(base, 8)}-{base}"


def endpoint_suffix(service: ServiceSpec, endpoint: int) -> str:
    """Return the same for one endpoint of it."""
    base = f"{NAMESPACE}/{service.name}/tcp/{PORT_NAME}__{endpoint_address(endpoint)}/{TARGET_PORT}"
    return f"{digest(base, 8)}-{base}"
