"""Names: who a value is about."""

from typing import NamedTuple

from knft.protocols import Protocol


class NamespacedName(NamedTuple):
    """A namespace and a name: one Service, or one EndpointSlice."""

    namespace: str
    name: str

    def __str__(self) -> str:
        """Return ``namespace/name``."""
        return f"{self.namespace}/{self.name}"


class ServicePortName(NamedTuple):
    """One port of one Service; the protocol is part of the key but never of the text (A.1)."""

    namespace: str
    name: str
    port: str
    protocol: Protocol

    @property
    def service(self) -> NamespacedName:
        """The Service that the port belongs to."""
        return NamespacedName(self.namespace, self.name)

    def __str__(self) -> str:
        """Return ``namespace/name:port``, or ``namespace/name`` for an unnamed port."""
        suffix = f":{self.port}" if self.port else ""
        return f"{self.namespace}/{self.name}{suffix}"
