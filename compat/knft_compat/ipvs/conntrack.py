"""The conntrack entries of UDP Services that a sync deletes at its end (docs/behaviour/conntrack.md#event-driven)."""

import shlex
from collections.abc import Iterable, Iterator

from msgspec import Struct

from knft.families import Family
from knft.model.names import ServicePortName
from knft.model.service_port import ServicePort
from knft_compat.ipvs.claims import node_port_addresses
from knft_compat.ipvs.rule_versions import ConntrackCleanup
from knft_compat.sync_input import PlannedPort, SyncInput


class EntryDeletion(Struct, frozen=True):
    """UDP entries to delete: by original destination, an address or a NodePort, and by endpoint (None for any)."""

    address: str | None = None
    port: int | None = None
    endpoint: str | None = None

    def arguments(self, family: Family) -> tuple[str, ...]:
        """Return the arguments of conntrack(8), in kube-proxy's order."""
        endpoint_arguments = ("--dst-nat", self.endpoint) if self.endpoint is not None else ()
        inet6 = ("-f", "ipv6") if family is Family.IPV6 else ()
        if self.address is not None:
            return ("-D", "--orig-dst", self.address, *endpoint_arguments, "-p", "udp", *inet6)
        return ("-D", "-p", "udp", "--dport", str(self.port), *endpoint_arguments, *inet6)


class ConntrackDeletions(Struct, frozen=True, tag="conntrack"):
    """The deletions, in order.

    The newest kube-proxy lists the kernel's entries and deletes the stale ones
    (docs/behaviour/conntrack.md#stale-udp-entries). The kernel's entries are unknown here, so the part is empty.
    """

    family: Family
    deletions: tuple[EntryDeletion, ...]
    tool = ("sh",)

    def text(self) -> Iterator[str]:
        """Yield one command for each deletion; like kube-proxy, ignore the failure when no entry matches."""
        for item in self.deletions:
            yield f"{shlex.join(('conntrack', *item.arguments(self.family)))} || true"


def conntrack_deletions(sync_input: SyncInput, cleanup: ConntrackCleanup) -> ConntrackDeletions:
    """Return the deletions of a sync; in the first sync all endpoints are new."""
    if cleanup is ConntrackCleanup.RECONCILER:
        found: Iterable[EntryDeletion] = ()
    elif cleanup is ConntrackCleanup.EVERY_SYNC:
        found = (*_all_node_ports(sync_input), *_changed_ports(sync_input, node_ports=False))
    else:
        found = _changed_ports(sync_input, node_ports=True)
    return ConntrackDeletions(sync_input.family, tuple(dict.fromkeys(found)))


def _all_node_ports(sync_input: SyncInput) -> Iterator[EntryDeletion]:
    if node_port_addresses(sync_input.node):
        for planned in _udp_ports(sync_input.ports).values():
            if planned.plan.port.node_port:
                yield EntryDeletion(port=planned.plan.port.node_port)


def _changed_ports(sync_input: SyncInput, *, node_ports: bool) -> Iterator[EntryDeletion]:
    current, previous = _udp_ports(sync_input.ports), _udp_ports(sync_input.previous_ports or ())
    started = [
        planned.plan.port
        for name, planned in current.items()
        if _has_ready_endpoint(planned) and not _has_ready_endpoint(previous.get(name))
    ]
    removed_ips = {planned.plan.port.cluster_ip for name, planned in previous.items() if name not in current}
    for address in sorted(removed_ips.union(*(_addresses(port) for port in started))):
        yield EntryDeletion(address=address)
    for number in sorted({port.node_port for port in started if node_ports and port.node_port}):
        yield EntryDeletion(port=number)
    for name, planned in previous.items():
        if name in current:
            yield from _removed_endpoints(current[name], planned, node_ports=node_ports)


def _removed_endpoints(current: PlannedPort, previous: PlannedPort, *, node_ports: bool) -> Iterator[EntryDeletion]:
    """Yield the entries of endpoints that served before this sync and no longer do."""
    serving = {endpoint.key for endpoint in current.endpoints if endpoint.serving}
    port = current.plan.port
    for endpoint in previous.endpoints:
        if endpoint.serving and endpoint.key not in serving:
            for address in _addresses(port):
                yield EntryDeletion(address=address, endpoint=endpoint.address)
            if node_ports and port.node_port:
                yield EntryDeletion(port=port.node_port, endpoint=endpoint.address)


def _udp_ports(ports: Iterable[PlannedPort]) -> dict[ServicePortName, PlannedPort]:
    return {planned.plan.name: planned for planned in ports if planned.plan.port.protocol == "UDP"}


def _has_ready_endpoint(planned: PlannedPort | None) -> bool:
    return planned is not None and any(endpoint.ready for endpoint in planned.endpoints)


def _addresses(port: ServicePort) -> tuple[str, ...]:
    return (port.cluster_ip, *port.external_ips, *port.load_balancer_vips)
