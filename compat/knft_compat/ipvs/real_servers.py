"""The real servers of a virtual server: added, kept, or terminated (docs/behaviour/ipvs.md#service-ports)."""

import enum
from collections.abc import Iterable, Iterator

from msgspec import Struct

from knft.model.endpoint import Endpoint, endpoint_key
from knft.protocols import Protocol
from knft_compat.ipvs.existing import ExistingRealServer

_GRACEFUL: frozenset[Protocol] = frozenset({"TCP"})


class Action(enum.Enum):
    """What a sync does to a virtual server or a real server."""

    ADD = "add"
    EDIT = "edit"
    KEEP = "keep"
    DELETE = "delete"
    ADD_AGAIN = "delete and add"
    """The real server was terminating (it had weight 0), and its endpoint is in use again."""


class RealServerUpdate(Struct, frozen=True):
    """A real server, its new weight, and what a sync does to it."""

    address: str
    port: int
    weight: int
    action: Action

    @property
    def address_and_port(self) -> str:
        """The address and port as text."""
        return endpoint_key(self.address, self.port)


def real_servers(
    protocol: Protocol,
    wanted: Iterable[Endpoint],
    existing_real_servers: tuple[ExistingRealServer, ...],
    *,
    is_first_sync: bool,
) -> Iterator[RealServerUpdate]:
    """Yield the wanted servers in order, then the existing servers that are not wanted.

    In its first sync kube-proxy does not know which servers are terminating, and restores the weight of every wanted
    server. Later, weight 0 marks terminating servers. A sync keeps them: once a minute, outside of syncs, kube-proxy
    deletes those whose connections have ended.
    """
    existing = {endpoint_key(real.address, real.port): real for real in existing_real_servers}
    weights_differ = any(real.weight != 1 for real in existing_real_servers)
    wanted_keys = set()
    for endpoint in wanted:
        wanted_keys.add(endpoint.key)
        action = _action_for_wanted(
            existing.get(endpoint.key), is_first_sync=is_first_sync, weights_differ=weights_differ
        )
        yield RealServerUpdate(endpoint.address, endpoint.port, 1, action)
    for key in sorted(existing.keys() - wanted_keys):
        yield _terminate(protocol, existing[key], is_first_sync=is_first_sync)


def _action_for_wanted(real: ExistingRealServer | None, *, is_first_sync: bool, weights_differ: bool) -> Action:
    if real is None:
        return Action.ADD
    if is_first_sync:
        # If the weight of one server is not 1, kube-proxy writes the weights of all, once for each such server.
        return Action.EDIT if weights_differ else Action.KEEP
    return Action.ADD_AGAIN if real.weight == 0 else Action.KEEP


def _terminate(protocol: Protocol, real: ExistingRealServer, *, is_first_sync: bool) -> RealServerUpdate:
    if real.weight == 0 and not is_first_sync:
        return RealServerUpdate(real.address, real.port, 0, Action.KEEP)
    is_graceful = protocol in _GRACEFUL and real.connections > 0
    return RealServerUpdate(real.address, real.port, 0, Action.EDIT if is_graceful else Action.DELETE)
