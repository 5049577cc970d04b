"""What becomes of a virtual server's real servers (E.6): added, kept, or let go without harming their connections."""

import enum
from collections.abc import Iterable, Iterator

from msgspec import Struct

from knft.model.endpoint import Endpoint, endpoint_key
from knft.model.names import Protocol
from knft_compat.ipvs.existing import ExistingReal

_GRACEFUL: frozenset[Protocol] = frozenset({"TCP"})


class Action(enum.Enum):
    """What is done to a server."""

    ADD = "add"
    EDIT = "edit"
    KEEP = "keep"
    DELETE = "delete"
    ADD_AGAIN = "delete and add"
    """It was being let go and is wanted again."""


class RealServer(Struct, frozen=True):
    """A real server, the weight it is to have, and what is done for that."""

    address: str
    port: int
    weight: int
    action: Action

    @property
    def place(self) -> str:
        """Address and port."""
        return endpoint_key(self.address, self.port)


def real_servers(
    protocol: Protocol, wanted: Iterable[Endpoint], there: tuple[ExistingReal, ...], *, first: bool
) -> Iterator[RealServer]:
    """Yield the wanted servers in order, and then those that are there and not wanted.

    In its ``first`` sync kube-proxy does not know what it was letting go, and gives every wanted server its weight
    back; later on weight 0 tells what is being let go. Such servers stay as they are: a loop of its own, once a
    minute and no part of a sync, deletes those whose connections have ended.
    """
    existing = {endpoint_key(real.address, real.port): real for real in there}
    weights_differ = any(real.weight != 1 for real in there)
    wanted_keys = set()
    for endpoint in wanted:
        wanted_keys.add(endpoint.key)
        action = _for_wanted(existing.get(endpoint.key), first=first, weights_differ=weights_differ)
        yield RealServer(endpoint.address, endpoint.port, 1, action)
    for key in sorted(existing.keys() - wanted_keys):
        yield _let_go(protocol, existing[key], first=first)


def _for_wanted(real: ExistingReal | None, *, first: bool, weights_differ: bool) -> Action:
    if real is None:
        return Action.ADD
    if first:
        # One weight that is not 1 makes kube-proxy write the weights of all, as often as there are such ones.
        return Action.EDIT if weights_differ else Action.KEEP
    return Action.ADD_AGAIN if real.weight == 0 else Action.KEEP


def _let_go(protocol: Protocol, real: ExistingReal, *, first: bool) -> RealServer:
    if real.weight == 0 and not first:
        return RealServer(real.address, real.port, 0, Action.KEEP)
    stays = protocol in _GRACEFUL and real.connections > 0
    return RealServer(real.address, real.port, 0, Action.EDIT if stays else Action.DELETE)
