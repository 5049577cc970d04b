"""kube-proxy's layout in iptables mode, as input of iptables-restore (docs/behaviour/iptables.md).

With more than 1 000 endpoints kube-proxy omits the comments of endpoint rules. They are omitted here at every size.
"""

from collections.abc import Iterable, Iterator

from msgspec import Struct

from tests.bench.changes import Step
from tests.bench.cluster import CLUSTER_CIDR, NAMESPACE, NODE_IP, PORT, TARGET_PORT, ServiceSpec, endpoint_address
from tests.bench.peers.layout import MARK, Transactions, digest, port_text

_NEW = "-m conntrack --ctstate NEW "
_JUMPS = {
    "filter": (
        ("INPUT", _NEW, "kubernetes externally-visible service portals", "KUBE-EXTERNAL-SERVICES"),
        ("FORWARD", _NEW, "kubernetes externally-visible service portals", "KUBE-EXTERNAL-SERVICES"),
        ("INPUT", "", "kubernetes health check service ports", "KUBE-NODEPORTS"),
        ("FORWARD", _NEW, "kubernetes service portals", "KUBE-SERVICES"),
        ("OUTPUT", _NEW, "kubernetes service portals", "KUBE-SERVICES"),
        ("FORWARD", "", "kubernetes forwarding rules", "KUBE-FORWARD"),
        ("INPUT", _NEW, "kubernetes load balancer firewall", "KUBE-PROXY-FIREWALL"),
        ("OUTPUT", _NEW, "kubernetes load balancer firewall", "KUBE-PROXY-FIREWALL"),
        ("FORWARD", _NEW, "kubernetes load balancer firewall", "KUBE-PROXY-FIREWALL"),
    ),
    "nat": (
        ("OUTPUT", "", "kubernetes service portals", "KUBE-SERVICES"),
        ("PREROUTING", "", "kubernetes service portals", "KUBE-SERVICES"),
        ("POSTROUTING", "", "kubernetes postrouting rules", "KUBE-POSTROUTING"),
    ),
}
_CHAINS = {
    "filter": ("KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES", "KUBE-FORWARD", "KUBE-NODEPORTS", "KUBE-PROXY-FIREWALL"),
    "nat": ("KUBE-SERVICES", "KUBE-NODEPORTS", "KUBE-POSTROUTING", "KUBE-MARK-MASQ"),
}
_FIRST = (
    f"-A KUBE-POSTROUTING -m mark ! --mark {MARK}/{MARK} -j RETURN",
    f"-A KUBE-POSTROUTING -j MARK --xor-mark {MARK}",
    '-A KUBE-POSTROUTING -m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE --random-fully',
    f"-A KUBE-MARK-MASQ -j MARK --or-mark {MARK}",
)
_FLOWS = "kubernetes forwarding conntrack rule"
_TAIL = "kubernetes service nodeports; NOTE: this must be the last rule in this chain"
_LAST_FILTER = (
    "-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP",
    f'-A KUBE-FORWARD -m comment --comment "kubernetes forwarding rules" -m mark --mark {MARK}/{MARK} -j ACCEPT',
    f'-A KUBE-FORWARD -m comment --comment "{_FLOWS}" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT',
)
_LAST_NAT = (f'-A KUBE-SERVICES -m comment --comment "{_TAIL}" -d {NODE_IP} -j KUBE-NODEPORTS',)


class _Common(Struct, frozen=True):
    """A Service's rules in the chains that all Services share; every sync writes all of them."""

    services: str
    firewall: str


class IptablesLayout:
    """The layout; it keeps the rules of all Services in the shared chains."""

    def __init__(self) -> None:
        self._common: dict[int, _Common] = {}

    def load(self, services: Iterable[ServiceSpec]) -> Iterator[str]:
        """Yield the lines of a first sync, with the jumps that kube-proxy adds one by one before it."""
        own: list[str] = []
        for service in services:
            self._common[service.number] = _common(service)
            own += _own_lines(service)
        yield from self._sync(own, jumps=True)

    def change(self, step: Step) -> Transactions:
        """Return a partial sync: the shared chains completely, and the own chains of changed Services."""
        own: list[str] = []
        for _, after in step:
            self._common[after.number] = _common(after)
            own += _own_lines(after)
        return Transactions("\n".join((*self._sync(own, jumps=False), "")))

    def _sync(self, own: list[str], *, jumps: bool) -> Iterator[str]:
        common = self._common.values()
        yield from ("*filter", *_declared("filter"), *(_jumps("filter") if jumps else ()))
        yield from (item.firewall for item in common if item.firewall)
        yield from (*_LAST_FILTER, "COMMIT", "*nat", *_declared("nat"))
        # kube-proxy writes all chains before all rules.
        yield from (line for line in own if line.startswith(":"))
        yield from (*(_jumps("nat") if jumps else ()), *_FIRST)
        yield from (item.services for item in common)
        yield from (line for line in own if not line.startswith(":"))
        yield from (*_LAST_NAT, "COMMIT")


def _declared(table: str) -> Iterator[str]:
    return (f":{name} - [0:0]" for name in _CHAINS[table])


def _jumps(table: str) -> Iterator[str]:
    return (
        f'-I {source} {match}-m comment --comment "{comment}" -j {target}'
        for source, match, comment, target in _JUMPS[table]
    )


def _names(service: ServiceSpec) -> tuple[str, str, str]:
    suffix = digest(f"{port_text(service)}tcp", 16)
    return f"KUBE-SVC-{suffix}", f"KUBE-EXT-{suffix}", f"KUBE-FW-{suffix}"


def _endpoint_name(service: ServiceSpec, endpoint: int) -> str:
    return "KUBE-SEP-" + digest(f"{port_text(service)}tcp{endpoint_address(endpoint)}:{TARGET_PORT}", 16)


def _dialled(address: str) -> str:
    return f"-m tcp -p tcp -d {address} --dport {PORT}"


def _common(service: ServiceSpec) -> _Common:
    own, _, firewall = _names(service)
    name = f"{NAMESPACE}/{service.name}:http"
    rules = [f'-A KUBE-SERVICES -m comment --comment "{name} cluster IP" {_dialled(service.cluster_ip)} -j {own}']
    if not service.ranges:
        return _Common(rules[0], "")
    (vip,) = map(_dialled, service.vips)
    rules.append(f'-A KUBE-SERVICES -m comment --comment "{name} loadbalancer IP" {vip} -j {firewall}')
    comment = f'-m comment --comment "{name} traffic not accepted by {firewall}"'
    return _Common("\n".join(rules), f"-A KUBE-PROXY-FIREWALL {comment} {vip} -j DROP")


def _own_lines(service: ServiceSpec) -> Iterator[str]:
    own, external, firewall = _names(service)
    name = port_text(service)
    yield f":{own} - [0:0]"
    cluster_ip = f'-m comment --comment "{name} cluster IP" {_dialled(service.cluster_ip)}'
    yield f"-A {own} {cluster_ip} ! -s {CLUSTER_CIDR} -j KUBE-MARK-MASQ"
    if service.ranges:
        yield from (f":{external} - [0:0]", f":{firewall} - [0:0]")
        comment = f'-m comment --comment "masquerade traffic for {name} external destinations"'
        yield from (f"-A {external} {comment} -j KUBE-MARK-MASQ", f"-A {external} -j {own}")
        comment = f'-m comment --comment "{name} loadbalancer IP"'
        yield from (f"-A {firewall} {comment} -s {cidr} -j {external}" for cidr in service.source_ranges)
        yield f'-A {firewall} -m comment --comment "other traffic to {name} will be dropped by KUBE-PROXY-FIREWALL"'
    yield from _endpoint_lines(service, own)


def _endpoint_lines(service: ServiceSpec, own: str) -> Iterator[str]:
    names = [_endpoint_name(service, endpoint) for endpoint in service.endpoints]
    if seconds := service.affinity_seconds:
        yield from (f"-A {own} -m recent --name {name} --rcheck --seconds {seconds} --reap -j {name}" for name in names)
    for index, name in enumerate(names):
        left = len(names) - index
        chance = f"-m statistic --mode random --probability {1 / left:0.10f} " if left > 1 else ""
        yield f"-A {own} {chance}-j {name}"
    for name, endpoint in zip(names, service.endpoints, strict=True):
        address = endpoint_address(endpoint)
        remembered = f"-m recent --name {name} --set " if service.affinity_seconds else ""
        yield f":{name} - [0:0]"
        yield f"-A {name} -s {address} -j KUBE-MARK-MASQ"
        yield f"-A {name} {remembered}-m tcp -p tcp -j DNAT --to-destination {address}:{TARGET_PORT}"
