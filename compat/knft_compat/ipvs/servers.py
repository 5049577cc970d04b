"""Virtual servers and their real servers, and the input of ``ipvsadm --restore`` (E.4, E.6)."""

from collections.abc import Iterable, Iterator

from msgspec import Struct

from knft.model import addresses
from knft.model.endpoint import endpoint_key
from knft.model.names import Family, Protocol
from knft_compat.ipvs.claims import Claim
from knft_compat.ipvs.existing import ExistingServer
from knft_compat.ipvs.settings import Settings
from knft_compat.ipvs.terminating import Action, RealServer, real_servers
from knft_compat.ipvs.vintages import Features

_OPTIONS = {"TCP": "-t", "UDP": "-u", "SCTP": "--sctp-service"}
_RESTORE = ("ipvsadm", "--restore")
_HASHING = "mh"

Place = tuple[Protocol, str, int]
"""What tells virtual servers apart."""


class VirtualServer(Struct, frozen=True):
    """A virtual server and what is done about it. ``persistent`` is a timeout in seconds, 0 without affinity."""

    protocol: Protocol
    address: str
    port: int
    scheduler: str
    persistent: int
    hashes_ports: bool
    action: Action
    reals: tuple[RealServer, ...]

    def text(self) -> Iterator[str]:
        """Yield a command for each thing that has to be done."""
        place = _place(self)
        if self.action is not Action.KEEP:
            verb = "-A" if self.action is Action.ADD else "-E"
            timeout = f" -p {self.persistent}" if self.persistent else ""
            flags = " -b mh-port" if self.hashes_ports else ""
            yield f"{verb} {place} -s {self.scheduler}{timeout}{flags}"
        for real in self.reals:
            if real.action in (Action.DELETE, Action.ADD_AGAIN):
                yield f"-d {place} -r {real.place}"
            if real.action in (Action.ADD, Action.ADD_AGAIN, Action.EDIT):
                verb = "-e" if real.action is Action.EDIT else "-a"
                yield f"{verb} {place} -r {real.place} -m -w {real.weight}"


class VirtualServers(Struct, frozen=True, tag="ipvsadm"):
    """All virtual servers that a sync wants. kube-proxy speaks to the kernel itself; these commands do the same.

    Where several claim one address and port, the last one's settings and endpoints are what kube-proxy's sync ends
    with, and they alone stand here.
    """

    servers: tuple[VirtualServer, ...]
    tool = _RESTORE

    def text(self) -> Iterator[str]:
        """Yield the commands."""
        for server in self.servers:
            yield from server.text()


class StaleServer(Struct, frozen=True):
    """A virtual server that goes."""

    protocol: Protocol
    address: str
    port: int


class StaleServers(Struct, frozen=True, tag="ipvsadm-stale"):
    """The virtual servers of the family that no Service wants, and that are in no excluded network."""

    servers: tuple[StaleServer, ...]
    tool = _RESTORE

    def text(self) -> Iterator[str]:
        """Yield the commands."""
        for server in self.servers:
            yield f"-D {_place(server)}"


def virtual_servers(
    found: Iterable[Claim], settings: Settings, features: Features, *, first: bool
) -> tuple[VirtualServer, ...]:
    """Return the servers for all claims, in the order in which their addresses are first claimed."""
    there = {_key(server): server for server in settings.servers or ()}
    last: dict[Place, Claim] = {}
    for claim in found:
        last[_key(claim)] = claim
    return tuple(_server(claim, there.get(key), settings, features, first=first) for key, claim in last.items())


def stale_servers(wanted: Iterable[VirtualServer], family: Family, settings: Settings) -> tuple[StaleServer, ...]:
    """Return which of the existing servers go."""
    active = {_key(server) for server in wanted}
    return tuple(
        StaleServer(*_key(server))
        for server in settings.servers or ()
        if addresses.of_family((server.address,), family)
        and _key(server) not in active
        and not any(addresses.contains(cidr, server.address) for cidr in settings.excluded)
    )


def _server(
    claim: Claim, there: ExistingServer | None, settings: Settings, features: Features, *, first: bool
) -> VirtualServer:
    hashes_ports = features.hashes_ports and settings.scheduler == _HASHING
    reals = there.reals if there is not None else ()
    wanted = (settings.scheduler, claim.affinity_seconds, hashes_ports, False)
    if there is None:
        action = Action.ADD
    else:
        has = (there.scheduler, there.persistent, there.hashes_ports, there.has_other_flags)
        action = Action.KEEP if has == wanted else Action.EDIT
    return VirtualServer(
        claim.protocol,
        claim.address,
        claim.port,
        settings.scheduler,
        claim.affinity_seconds,
        hashes_ports,
        action,
        tuple(real_servers(claim.protocol, claim.endpoints, reals, first=first)),
    )


def _key(server: Claim | ExistingServer | VirtualServer) -> Place:
    return server.protocol, server.address, server.port


def _place(server: VirtualServer | StaleServer) -> str:
    return f"{_OPTIONS[server.protocol]} {endpoint_key(server.address, server.port)}"
