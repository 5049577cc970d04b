"""UnknownObjects: which objects may exist although they could not be read."""

from collections.abc import Iterable

from msgspec import Struct

from knft.model.names import NamespacedName

MAX_SHOWN = 3


class UnknownObjects(Struct, frozen=True):
    """The objects that invalid manifests may describe; rules in the kernel may belong to them.

    ``anything`` means every object. ``node`` means the objects that describe the node: its Node, and ServiceCIDRs.
    ``services`` are Services and their EndpointSlices; ``namespaces`` means all Services of these namespaces.
    """

    anything: bool = False
    node: bool = False
    services: frozenset[NamespacedName] = frozenset()
    namespaces: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        """Whether any object may be unknown."""
        return self.anything or self.node or bool(self.services or self.namespaces)

    def __str__(self) -> str:
        """Return them as text for a log, such as "the node and Service default/web"; at most ``MAX_SHOWN`` by name."""
        if self.anything:
            return "every object"
        parts = ["the node"] if self.node else []
        parts += [f"all Services in namespace {namespace}" for namespace in sorted(self.namespaces)]
        parts += [f"Service {service}" for service in sorted(self.services)]
        more = [f"{len(parts) - MAX_SHOWN} more"] if len(parts) > MAX_SHOWN else []
        return " and ".join(parts[:MAX_SHOWN] + more)

    @classmethod
    def merged(cls, parts: Iterable["UnknownObjects"]) -> "UnknownObjects":
        """Return the union of all parts."""
        found = tuple(parts)
        if any(part.anything for part in found):
            return ANYTHING
        return cls(
            node=any(part.node for part in found),
            services=frozenset[NamespacedName]().union(*(part.services for part in found)),
            namespaces=frozenset[str]().union(*(part.namespaces for part in found)),
        )

    def includes_service(self, service: NamespacedName) -> bool:
        """Tell whether a Service, or some of its EndpointSlices, may be among them."""
        return self.anything or service in self.services or service.namespace in self.namespaces

    @property
    def includes_node(self) -> bool:
        """Whether an object that describes the node may be among them."""
        return self.anything or self.node


NOTHING_UNKNOWN = UnknownObjects()
ANYTHING = UnknownObjects(anything=True)
