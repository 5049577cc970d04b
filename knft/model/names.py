"""Names of Services, EndpointSlices and Service ports."""

from typing import NamedTuple

from knft.protocols import Protocol


class NamespacedName(NamedTuple):
    """Namespace and name of an object."""

    namespace: str
    name: str

    def __str__(self) -> str:
        """Return ``namespace/name``."""
        return f"{self.namespace}/{self.name}"


class ServicePortName(NamedTuple):
    """One port of one Service; ``str()`` omits the protocol (docs/behaviour/tracking.md#keys)."""

    namespace: str
    name: str
    port: str
    protocol: Protocol

    @property
    def service(self) -> NamespacedName:
        """The Service of the port."""
        return NamespacedName(self.namespace, self.name)

    def __str__(self) -> str:
        """Return ``namespace/name:port``, or ``namespace/name`` for an unnamed port."""
        suffix = f":{self.port}" if self.port else ""
        return f"{self.namespace}/{self.name}{suffix}"
