"""Which connections of UDP Services are made to be forgotten at the end of a sync, by vintage (F.3)."""

import shlex
from collections.abc import Iterable, Iterator

from msgspec import Struct

from knft.model.names import Family, ServicePortName
from knft.model.service_port import ServicePort
from knft_compat.cluster import Cluster, ServedPort
from knft_compat.ipvs.claims import node_port_addresses
from knft_compat.ipvs.vintages import Forgetting


class Forgotten(Struct, frozen=True):
    """Connections over UDP: what the client dialled, an address or a NodePort, and who answered, None for anybody."""

    address: str | None = None
    port: int | None = None
    endpoint: str | None = None

    def arguments(self, family: Family) -> tuple[str, ...]:
        """Return conntrack's arguments, as kube-proxy orders them."""
        answered = ("--dst-nat", self.endpoint) if self.endpoint is not None else ()
        inet6 = ("-f", "ipv6") if family is Family.IPV6 else ()
        if self.address is not None:
            return ("-D", "--orig-dst", self.address, *answered, "-p", "udp", *inet6)
        return ("-D", "-p", "udp", "--dport", str(self.port), *answered, *inet6)


class Conntrack(Struct, frozen=True, tag="conntrack"):
    """The deletions, in order.

    The newest kube-proxy looks at every entry of the kernel's table and deletes those that no longer fit, one by one
    (F.1); without that table there is nothing to say, and the part is empty.
    """

    family: Family
    deletions: tuple[Forgotten, ...]
    tool = ("sh",)

    def text(self) -> Iterator[str]:
        """Yield a command for each; one that finds nothing to delete fails, which kube-proxy takes for success."""
        for item in self.deletions:
            yield f"{shlex.join(('conntrack', *item.arguments(self.family)))} || true"


def conntrack(cluster: Cluster, forgetting: Forgetting) -> Conntrack:
    """Return what is deleted; before its first sync kube-proxy knows of no endpoints, so that all of them are new."""
    if forgetting is Forgetting.BY_LOOKING:
        found: Iterable[Forgotten] = ()
    elif forgetting is Forgetting.AT_EACH_STEP:
        found = (*_each_node_port(cluster), *_changed(cluster, node_ports=False))
    else:
        found = _changed(cluster, node_ports=True)
    return Conntrack(cluster.family, tuple(dict.fromkeys(found)))


def _each_node_port(cluster: Cluster) -> Iterator[Forgotten]:
    if node_port_addresses(cluster.node):
        for served in _udp(cluster.ports).values():
            if served.plan.port.node_port:
                yield Forgotten(port=served.plan.port.node_port)


def _changed(cluster: Cluster, *, node_ports: bool) -> Iterator[Forgotten]:
    now, before = _udp(cluster.ports), _udp(cluster.before or ())
    started = [served.plan.port for name, served in now.items() if _ready(served) and not _ready(before.get(name))]
    gone = {served.plan.port.cluster_ip for name, served in before.items() if name not in now}
    for address in sorted(gone.union(*(_addresses(port) for port in started))):
        yield Forgotten(address=address)
    for number in sorted({port.node_port for port in started if node_ports and port.node_port}):
        yield Forgotten(port=number)
    for name, served in before.items():
        if name in now:
            yield from _left(now[name], served, node_ports=node_ports)


def _left(now: ServedPort, before: ServedPort, *, node_ports: bool) -> Iterator[Forgotten]:
    """Yield the connections of endpoints that served before and do not any more."""
    serving = {endpoint.key for endpoint in now.endpoints if endpoint.serving}
    port = now.plan.port
    for endpoint in before.endpoints:
        if endpoint.serving and endpoint.key not in serving:
            for address in _addresses(port):
                yield Forgotten(address=address, endpoint=endpoint.address)
            if node_ports and port.node_port:
                yield Forgotten(port=port.node_port, endpoint=endpoint.address)


def _udp(ports: Iterable[ServedPort]) -> dict[ServicePortName, ServedPort]:
    return {served.plan.name: served for served in ports if served.plan.port.protocol == "UDP"}


def _ready(served: ServedPort | None) -> bool:
    return served is not None and any(endpoint.ready for endpoint in served.endpoints)


def _addresses(port: ServicePort) -> tuple[str, ...]:
    return (port.cluster_ip, *port.external_ips, *port.load_balancer_vips)
