"""Virtual servers and their real servers, as input of ``ipvsadm --restore`` (docs/behaviour/ipvs.md#service-ports)."""

from collections.abc import Iterable, Iterator

from msgspec import Struct

from knft.families import Family
from knft.model import addresses
from knft.model.endpoint import endpoint_key
from knft.protocols import Protocol
from knft_compat.ipvs.claims import Claim
from knft_compat.ipvs.existing import ExistingServer
from knft_compat.ipvs.real_servers import Action, RealServerUpdate, real_servers
from knft_compat.ipvs.rule_versions import Features
from knft_compat.ipvs.settings import Settings

_OPTIONS = {"TCP": "-t", "UDP": "-u", "SCTP": "--sctp-service"}
_RESTORE = ("ipvsadm", "--restore")
_MAGLEV = "mh"

ServerKey = tuple[Protocol, str, int]
"""The key of a virtual server: protocol, address and port."""


class VirtualServerUpdate(Struct, frozen=True):
    """A virtual server, and what a sync does to it; ``persistent`` is a timeout in seconds, 0 without affinity."""

    protocol: Protocol
    address: str
    port: int
    scheduler: str
    persistent: int
    hashes_ports: bool
    action: Action
    reals: tuple[RealServerUpdate, ...]

    def text(self) -> Iterator[str]:
        """Yield the commands."""
        service = _service_arguments(self)
        if self.action is not Action.KEEP:
            verb = "-A" if self.action is Action.ADD else "-E"
            timeout = f" -p {self.persistent}" if self.persistent else ""
            flags = " -b mh-port" if self.hashes_ports else ""
            yield f"{verb} {service} -s {self.scheduler}{timeout}{flags}"
        for real in self.reals:
            if real.action in (Action.DELETE, Action.ADD_AGAIN):
                yield f"-d {service} -r {real.address_and_port}"
            if real.action in (Action.ADD, Action.ADD_AGAIN, Action.EDIT):
                verb = "-e" if real.action is Action.EDIT else "-a"
                yield f"{verb} {service} -r {real.address_and_port} -m -w {real.weight}"


class VirtualServers(Struct, frozen=True, tag="ipvsadm"):
    """All virtual servers of a sync; kube-proxy uses netlink, and these commands have the same result.

    If several Services claim an address and port, the last one overwrites the others in kube-proxy's sync. Only the
    last one is rendered.
    """

    servers: tuple[VirtualServerUpdate, ...]
    tool = _RESTORE

    def text(self) -> Iterator[str]:
        """Yield the commands."""
        for server in self.servers:
            yield from server.text()


class StaleServer(Struct, frozen=True):
    """A virtual server to delete."""

    protocol: Protocol
    address: str
    port: int


class StaleServers(Struct, frozen=True, tag="ipvsadm-stale"):
    """Deletes the virtual servers of the family that no Service has, except those in excluded CIDRs."""

    servers: tuple[StaleServer, ...]
    tool = _RESTORE

    def text(self) -> Iterator[str]:
        """Yield the commands."""
        for server in self.servers:
            yield f"-D {_service_arguments(server)}"


class TerminatedServers(Struct, frozen=True, tag="ipvsadm-terminated"):
    """Deletes real servers that were terminating and have no connections any more.

    kube-proxy does so once a minute, outside of syncs.
    """

    real_servers: tuple[tuple[StaleServer, str], ...]
    """Virtual servers, each with the address and port of one of its real servers."""
    tool = _RESTORE

    def text(self) -> Iterator[str]:
        """Yield the commands."""
        for server, real in self.real_servers:
            yield f"-d {_service_arguments(server)} -r {real}"


def terminated_servers(updates: Iterable[VirtualServerUpdate], settings: Settings) -> TerminatedServers:
    """Return the real servers that a sync keeps with weight 0, and that have no connections any more."""
    connections = {
        (_server_key(server), endpoint_key(real.address, real.port)): real.connections
        for server in settings.existing_servers or ()
        for real in server.real_servers
    }
    return TerminatedServers(
        tuple(
            (StaleServer(*_server_key(update)), real.address_and_port)
            for update in updates
            for real in update.reals
            if real.weight == 0
            and real.action is Action.KEEP
            and not connections[_server_key(update), real.address_and_port]
        )
    )


def virtual_servers(
    all_claims: Iterable[Claim], settings: Settings, features: Features, *, is_first_sync: bool
) -> tuple[VirtualServerUpdate, ...]:
    """Return the virtual servers of all claims, ordered by the first claim of each address and port."""
    existing = {_server_key(server): server for server in settings.existing_servers or ()}
    last: dict[ServerKey, Claim] = {}
    for claim in all_claims:
        last[_server_key(claim)] = claim
    return tuple(
        _virtual_server(claim, existing.get(key), settings, features, is_first_sync=is_first_sync)
        for key, claim in last.items()
    )


def stale_servers(wanted: Iterable[VirtualServerUpdate], family: Family, settings: Settings) -> tuple[StaleServer, ...]:
    """Return the existing servers to delete."""
    active = {_server_key(server) for server in wanted}
    return tuple(
        StaleServer(*_server_key(server))
        for server in settings.existing_servers or ()
        if addresses.of_family((server.address,), family)
        and _server_key(server) not in active
        and not any(addresses.contains(cidr, server.address) for cidr in settings.excluded_cidrs)
    )


def _virtual_server(
    claim: Claim, existing: ExistingServer | None, settings: Settings, features: Features, *, is_first_sync: bool
) -> VirtualServerUpdate:
    hashes_ports = features.mh_hashes_ports and settings.scheduler == _MAGLEV
    reals = existing.real_servers if existing is not None else ()
    wanted = (settings.scheduler, claim.affinity_seconds, hashes_ports, False)
    if existing is None:
        action = Action.ADD
    else:
        has = (existing.scheduler, existing.persistent, existing.hashes_ports, existing.has_other_flags)
        action = Action.KEEP if has == wanted else Action.EDIT
    return VirtualServerUpdate(
        claim.protocol,
        claim.address,
        claim.port,
        settings.scheduler,
        claim.affinity_seconds,
        hashes_ports,
        action,
        tuple(real_servers(claim.protocol, claim.endpoints, reals, is_first_sync=is_first_sync)),
    )


def _server_key(server: Claim | ExistingServer | VirtualServerUpdate) -> ServerKey:
    return server.protocol, server.address, server.port


def _service_arguments(server: VirtualServerUpdate | StaleServer) -> str:
    return f"{_OPTIONS[server.protocol]} {endpoint_key(server.address, server.port)}"
