"""Where a changed object goes: to the trackers of every family, or into the view of the node."""

from collections.abc import Callable, Iterable

from knft.config import Config
from knft.decide.node import node_addresses, view_node
from knft.model.names import NamespacedName
from knft.model.objects import Change, EndpointSlice, Node, Service, ServiceCIDR
from knft.source.select import is_selected
from knft.sync.state import ServiceState


class Dispatcher:
    """Hands changes on. One thread at a time calls it."""

    def __init__(
        self,
        config: Config,
        states: tuple[ServiceState, ...],
    ) -> None:
        """Feed ``states``; until the machine's addresses are noted, those of the Node object stand for them."""
        self._config = config
        self._states = states
        self._local_addresses: frozenset[str] | None = None
        self._node: Node | None = None
        self._service_cidrs: dict[NamespacedName, ServiceCIDR] = {}

    def handle(self, changes: Iterable[Change]) -> bool:
        """Hand changes on; return whether a sync is due."""
        due = False
        for change in changes:
            due |= self._handle_one(change)
        return due

    def _handle_one(self, change: Change) -> bool:
        name = self._config.node_name
        previous, current = (
            item if item is not None and is_selected(item, name) else None for item in (change.previous, change.current)
        )
        match current or previous:
            case Service():
                return self._to_all(lambda state: state.handle_service(previous, current))  # type: ignore[arg-type]
            case EndpointSlice():
                return self._to_all(lambda state: state.handle_slice(previous, current))  # type: ignore[arg-type]
            case Node():
                self._node = current  # type: ignore[assignment]
                return self.refresh_node()
            case ServiceCIDR() as found:
                self._service_cidrs.pop(found.key, None)
                if current is not None:
                    self._service_cidrs[found.key] = found
                return self.refresh_node()
            case _:
                return False

    def note_addresses(self, local_addresses: frozenset[str]) -> bool:
        """Take the machine's interface addresses as they are now; return whether a sync is due."""
        self._local_addresses = local_addresses
        return self.refresh_node()

    def refresh_node(self) -> bool:
        """Tell every family what the node looks like now; return whether a sync is due."""
        local = self._local_addresses
        addresses = frozenset(node_addresses(self._node)) if local is None else local
        cidrs = tuple(self._service_cidrs.values())
        return self._to_all(
            lambda state: state.handle_node(view_node(state.node.family, self._config, self._node, cidrs, addresses))
        )

    def _to_all(self, tell: Callable[[ServiceState], bool]) -> bool:
        """Tell every family, also after one has said that a sync is due."""
        answers = [tell(state) for state in self._states]
        return any(answers)
