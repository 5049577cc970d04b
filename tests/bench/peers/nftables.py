"""kube-proxy's two layouts in nftables mode: what a Service has in the table, and the changes between two versions."""

from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct

from tests.bench.changes import Step
from tests.bench.cluster import CLUSTER_CIDR, ServiceSpec, endpoint_address, is_local
from tests.bench.peers.layout import MARK, Transactions, endpoint_suffix, port_text, service_suffix
from tests.bench.peers.table import TABLE, setup


class ServiceContents(Struct, frozen=True):
    """What a Service has in the table: chains with rules, map and set elements, dynamic sets with timeouts."""

    chains: dict[str, tuple[str, ...]]
    elements: dict[tuple[str, str], str]
    sets: dict[str, int]


_NOTHING = ServiceContents({}, {}, {})


def _frontend(service: ServiceSpec, address: str) -> str:
    return f"{address} . tcp . {service.port.number}"


def _service_contents(
    service: ServiceSpec, chains: dict[str, tuple[str, ...]], elements: dict[tuple[str, str], str], masquerade: str
) -> ServiceContents:
    """Add what both layouts have: frontends, the load balancer, affinity sets."""
    suffix, comment = service_suffix(service), f'comment "{port_text(service)}"'
    elements = elements | {
        ("cluster-ips", service.cluster_ip): "",
        ("service-ips", _frontend(service, service.cluster_ip)): f"{comment} : goto service-{suffix}",
    }
    if external := (*service.external_ips, *service.vips):
        chains = chains | {f"external-{suffix}": (f'{masquerade} comment "masquerade"', f"goto service-{suffix}")}
        goto = f"{comment} : goto external-{suffix}"
        elements |= {("service-ips", _frontend(service, address)): goto for address in external}
    if service.ranges:
        drop = f"ip saddr != {{ {', '.join(service.source_ranges)} }} drop"
        chains = chains | {f"firewall-{suffix}": (drop,)}
        goto = f"{comment} : goto firewall-{suffix}"
        elements |= {("firewall-ips", _frontend(service, vip)): goto for vip in service.vips}
    stuck = service.endpoints if service.affinity_seconds else ()
    sets = {f"affinity-{endpoint_suffix(service, endpoint)}": service.affinity_seconds for endpoint in stuck}
    return ServiceContents(chains, elements, sets)


def _sticky_rules(service: ServiceSpec) -> tuple[str, ...]:
    suffixes = (endpoint_suffix(service, endpoint) for endpoint in service.endpoints)
    return tuple(f"ip saddr @affinity-{suffix} goto endpoint-{suffix}" for suffix in suffixes)


def _random_goto(service: ServiceSpec) -> str:
    suffixes = (endpoint_suffix(service, endpoint) for endpoint in service.endpoints)
    targets = " , ".join(f"{index} : goto endpoint-{suffix}" for index, suffix in enumerate(suffixes))
    return f"numgen random mod {len(service.endpoints)} vmap {{ {targets} }}"


def _endpoint_chains(service: ServiceSpec, first: Callable[[str], tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Return a chain for each endpoint, which begins with the rules of ``first``."""
    chains = {}
    for endpoint in service.endpoints:
        suffix, address = endpoint_suffix(service, endpoint), endpoint_address(endpoint)
        update = (f"update @affinity-{suffix} {{ ip saddr }}",) if service.affinity_seconds else ()
        target = f"meta l4proto tcp dnat to {address}:{service.port.target}"
        chains[f"endpoint-{suffix}"] = (*first(address), *update, target)
    return chains


def share_of_endpoint_chains(service: ServiceSpec) -> ServiceContents:
    """Return the part of a Service port up to kube-proxy 1.35: a chain for each endpoint, which marks by a jump."""
    outside = f"ip daddr {service.cluster_ip} ip saddr != {CLUSTER_CIDR} jump mark-for-masquerade"
    stuck = _sticky_rules(service) if service.affinity_seconds else ()
    chains = _endpoint_chains(service, lambda address: (f"ip saddr {address} jump mark-for-masquerade",))
    chains[f"service-{service_suffix(service)}"] = (outside, *stuck, _random_goto(service))
    return _service_contents(service, chains, {}, "jump mark-for-masquerade")


def share_of_anonymous_maps(service: ServiceSpec) -> ServiceContents:
    """Return the part from 1.36 on: an anonymous map in its chain; endpoint chains with affinity only."""
    local = (endpoint_address(endpoint) for endpoint in service.endpoints if is_local(endpoint))
    hairpin = {("hairpin-connections", f"{address} . {address} . tcp . {service.port.target}"): "" for address in local}
    chains, rules = _map_rules(service)
    chains[f"service-{service_suffix(service)}"] = rules
    return _service_contents(service, chains, hairpin, f"mark set mark or {MARK}")


def _map_rules(service: ServiceSpec) -> tuple[dict[str, tuple[str, ...]], tuple[str, ...]]:
    if service.affinity_seconds:
        return _endpoint_chains(service, lambda _: ()), (*_sticky_rules(service), _random_goto(service))
    addresses = [endpoint_address(endpoint) for endpoint in service.endpoints]
    if len(addresses) == 1:
        return {}, (f"meta l4proto tcp dnat to {addresses[0]}:{service.port.target}",)
    targets = " , ".join(f"{index} : {address} . {service.port.target}" for index, address in enumerate(addresses))
    choice = f"numgen random mod {len(addresses)} map {{ {targets} }}"
    return {}, (f"meta l4proto tcp dnat ip addr . port to {choice}",)


class NftablesLayout:
    """One of the two layouts; it keeps no state.

    ``share`` returns what a Service with one port has in the table.
    """

    def __init__(self, share: Callable[[ServiceSpec], ServiceContents], *, marks_by_chain: bool) -> None:
        self._share = share
        self._marks_by_chain = marks_by_chain

    def load(self, services: Iterable[ServiceSpec]) -> Iterator[str]:
        """Yield the lines of a first sync."""
        yield from setup(marks_by_chain=self._marks_by_chain)
        for service in services:
            yield from _difference(_NOTHING, self._contents(service))

    def change(self, step: Step) -> Transactions:
        """Return the sync after a step: the chains of changed Services are flushed and written again."""
        now: list[str] = []
        later: list[str] = []
        for before, after in step:
            old = self._contents(before) if before is not None else _NOTHING
            new = self._contents(after)
            now += _difference(old, new)
            later += [f"delete chain {TABLE} {name}" for name in old.chains if name not in new.chains]
        return Transactions("\n".join((*now, "")), "\n".join((*later, "")) if later else "")

    def _contents(self, service: ServiceSpec) -> ServiceContents:
        contents = ServiceContents({}, {}, {})
        for share in map(self._share, service.split_ports()):
            contents.chains.update(share.chains)
            contents.elements.update(share.elements)
            contents.sets.update(share.sets)
        return contents


def _difference(old: ServiceContents, new: ServiceContents) -> Iterator[str]:
    for name in new.chains:
        yield f"add chain {TABLE} {name}"
        yield f"flush chain {TABLE} {name}"
    for name, seconds in new.sets.items():
        yield f"add set {TABLE} {name} {{ type ipv4_addr ; flags dynamic,timeout ; timeout {seconds}s ; }}"
    yield from _elements(old.elements, new.elements)
    for name, rules in new.chains.items():
        yield from (f"add rule {TABLE} {name} {rule}" for rule in rules)
    yield from (f"flush chain {TABLE} {name}" for name in old.chains if name not in new.chains)
    yield from (f"delete set {TABLE} {name}" for name in old.sets if name not in new.sets)


def _elements(old: dict[tuple[str, str], str], new: dict[tuple[str, str], str]) -> Iterator[str]:
    for (container, key), value in old.items():
        if new.get((container, key)) != value:
            yield f"delete element {TABLE} {container} {{ {key} }}"
    for (container, key), value in new.items():
        if old.get((container, key)) != value:
            yield f"add element {TABLE} {container} {{ {key} {value} }}"
