"""Dispatcher: passes changed objects and NodeViews to the ServiceStates of both families."""

from collections.abc import Callable, Collection, Iterable
from collections.abc import Set as AbstractSet

from msgspec import Struct

from knft.config import Config
from knft.decide.node import node_addresses, view_node
from knft.families import Family
from knft.model.names import NamespacedName
from knft.model.objects import EndpointSlice, KubeObject, Node, ObjectChange, Service, ServiceCIDR
from knft.source.select import is_selected
from knft.sync.service_events import Arrival
from knft.sync.service_warnings import ServiceWarnings
from knft.sync.state import ServiceState


class NodeInputs(Struct, frozen=True):
    """What a NodeView is made of besides the settings, and the names of the other Node objects."""

    node: Node | None
    service_cidrs: tuple[ServiceCIDR, ...]
    local_addresses: frozenset[str] | None
    other_nodes: frozenset[str]


class Dispatcher:
    """Passes changes to ServiceStates. Only one thread may call it at a time."""

    def __init__(
        self,
        config: Config,
        states: tuple[ServiceState, ...],
        service_warnings: ServiceWarnings | None = None,
    ) -> None:
        """Pass changes to ``states`` and ``service_warnings``.

        Until the local addresses are known, those of the Node object are used.
        """
        self._config = config
        self._states = states
        self._states_by_address_type = {state.node.family.value: state for state in states}
        self._service_warnings = service_warnings
        self._local_addresses: frozenset[str] | None = None
        self._node: Node | None = None
        self._other_nodes: set[str] = set()
        self._service_cidrs: dict[NamespacedName, ServiceCIDR] = {}

    def handle(self, changes: Iterable[ObjectChange], received: float = 0.0) -> set[Family]:
        """Pass changes to the states that they concern; return the families whose sync is due.

        ``received`` is when they arrived, in seconds of the monotonic clock.
        """
        due: set[Family] = set()
        for change in changes:
            due |= self._handle_one(change, Arrival(change.resource_version, received))
        return due

    def _handle_one(self, change: ObjectChange, arrival: Arrival) -> set[Family]:
        previous, current = self._selected(change.previous), self._selected(change.current)
        match current or previous:
            case Service():
                self._record_for_warnings(previous, current)  # type: ignore[arg-type]
                return self._due(lambda state: state.handle_service(previous, current, arrival))  # type: ignore[arg-type]
            case EndpointSlice():
                self._record_for_warnings(previous, current)  # type: ignore[arg-type]
                return self._handle_slice(previous, current, arrival)  # type: ignore[arg-type]
            case Node():
                self._node = current  # type: ignore[assignment]
                return self.refresh_node()
            case ServiceCIDR() as service_cidr:
                self._service_cidrs.pop(service_cidr.key, None)
                if current is not None:
                    self._service_cidrs[service_cidr.key] = service_cidr
                return self.refresh_node()
            case _:
                self._record_other_node(change)
                return set()

    def _handle_slice(
        self, previous: EndpointSlice | None, current: EndpointSlice | None, arrival: Arrival
    ) -> set[Family]:
        """Pass a slice to the state of its family; to both if its address type changed, as in edited manifests."""
        due: set[Family] = set()
        for address_type in {item.address_type for item in (previous, current) if item is not None}:
            state = self._states_by_address_type.get(address_type)
            if state is not None and state.handle_slice(previous, current, arrival):
                due.add(state.node.family)
        return due

    def _due(self, handle: Callable[[ServiceState], bool]) -> set[Family]:
        """Pass a change to every state; ``handle`` returns whether a sync of that state is due."""
        return {state.node.family for state in self._states if handle(state)}

    def _selected(self, item: KubeObject | None) -> KubeObject | None:
        return item if item is not None and is_selected(item, self._config.node_name) else None

    def _record_for_warnings(
        self, previous: Service | EndpointSlice | None, current: Service | EndpointSlice | None
    ) -> None:
        if self._service_warnings is not None:
            self._service_warnings.record(previous, current)

    def _record_other_node(self, change: ObjectChange) -> None:
        """Record the name of another Node; the API server sends only this one."""
        match change.current or change.previous:
            case Node(metadata=metadata) if metadata.name != self._config.node_name:
                (self._other_nodes.discard if change.current is None else self._other_nodes.add)(metadata.name)
            case _:
                pass

    @property
    def local_addresses(self) -> frozenset[str] | None:
        """The addresses of the machine's interfaces, None if they are unknown."""
        return self._local_addresses

    def node_inputs(self) -> NodeInputs:
        """Return what the NodeViews are made of; from any thread."""
        # Each copy is one step of the interpreter.
        cidrs, other_nodes = tuple(self._service_cidrs.values()), frozenset(self._other_nodes)
        return NodeInputs(self._node, cidrs, self._local_addresses, other_nodes)

    @property
    def node(self) -> Node | None:
        """The node's Node object."""
        return self._node

    @property
    def has_node(self) -> bool:
        """Whether the node has a Node object."""
        return self._node is not None

    @property
    def service_cidrs(self) -> Collection[ServiceCIDR]:
        """The ServiceCIDR objects."""
        return self._service_cidrs.values()

    @property
    def other_nodes(self) -> AbstractSet[str]:
        """The names of the other Node objects."""
        return self._other_nodes

    def update_local_addresses(self, local_addresses: frozenset[str]) -> set[Family]:
        """Replace the addresses of the machine's interfaces; return the families whose sync is due."""
        self._local_addresses = local_addresses
        return self.refresh_node()

    def refresh_node(self) -> set[Family]:
        """Pass the current NodeView of each family to its state; return the families whose sync is due."""
        local = self._local_addresses
        addresses = frozenset(node_addresses(self._node)) if local is None else local
        cidrs = tuple(self._service_cidrs.values())
        return self._due(
            lambda state: state.handle_node(view_node(state.node.family, self._config, self._node, cidrs, addresses))
        )
