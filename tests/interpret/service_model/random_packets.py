"""Generates the packets that distinguish a cluster's Services: to all frontends and near misses, from all senders."""

from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_address
from typing import Any, Literal

from msgspec import Struct

from tests.interpret.service_model.service_model import LOOPBACK, Packet, Settings
from tests.support.service_manifests import Family, Network, addresses, networks, node_ips, within

Object = Mapping[str, Any]
Protocol = Literal["tcp", "udp", "sctp"]
Origin = Literal["node", "pod", "outside"]

PROTOCOLS: tuple[Protocol, ...] = ("tcp", "udp", "sctp")
_PODS_HERE: Mapping[Family, tuple[str, ...]] = {4: ("10.244.1.0/24",), 6: ("fd00:10:244:1::/64",)}
_PODS: Mapping[Family, tuple[str, ...]] = {4: ("10.244.1.99", "172.30.1.1"), 6: ("fd00:10:244:1::99", "fd00:172::1")}
"""Pods of this node: one in the pod CIDR, and one that only its interface identifies."""
_OUTSIDE: Mapping[Family, tuple[str, ...]] = {
    4: ("198.51.100.7", "192.0.2.100", "192.0.2.200", "10.244.2.99"),
    6: ("2001:db8:9::7", "2001:db8:1::100", "2001:db8:7::1", "fd00:10:244:2::99"),
}
_UNCLAIMED_ADDRESSES: Mapping[Family, tuple[str, ...]] = {
    4: ("10.96.0.250", "203.0.113.77"),
    6: ("fd00:10:96::250", "2001:db8:cb::77"),
}
"""Addresses that belong to no Service, in the Service CIDR and elsewhere."""
_STALE: Mapping[Family, str] = {4: "10.244.9.9:8080", 6: "[fd00:10:244:9::9]:8080"}


class Destination(Struct, frozen=True):
    """A destination, and the endpoints that session affinity can remember for it."""

    address: str
    protocol: Protocol
    port: int
    endpoints: tuple[str, ...] = ()


Source = tuple[Origin, str]


def packets_for(objects: Sequence[Object], settings: Settings) -> Iterator[Packet]:
    """Yield distinct packets of both families."""
    families: tuple[Family, ...] = (4, 6)
    for family in families:
        yield from dict.fromkeys(_packets(objects, settings, family))


def _packets(objects: Sequence[Object], settings: Settings, family: Family) -> Iterator[Packet]:
    sources = list(dict.fromkeys(_sources(objects, settings, family)))
    few = [next(source for source in sources if source[0] == origin) for origin in ("node", "pod", "outside")]
    for destination in dict.fromkeys(_frontends(objects, settings, family)):
        known = (*destination.endpoints, _STALE[family])
        remembering = [(source, remembered) for source in few for remembered in known]
        # A hairpin: an endpoint connects to its own Service, and affinity remembers itself.
        itself = [(source, end) for source in sources for end in destination.endpoints if _host(end) == source[1]]
        for source, remembered in [*((source, None) for source in sources), *remembering, *itself]:
            yield from _packet(family, source, destination, remembered)
    for destination in dict.fromkeys(_near_misses(objects, settings, family)):
        for source in few:
            yield from _packet(family, source, destination, None)


def _host(endpoint: str) -> str:
    return endpoint.rpartition(":")[0].strip("[]")


def _packet(family: Family, source: Source, destination: Destination, remembered: str | None) -> Iterator[Packet]:
    """Yield a packet, or none if it is impossible: packets from outside to a loopback address."""
    origin, address = source
    to_loopback = ip_address(destination.address).is_loopback
    if to_loopback and origin != "node":
        return
    if ip_address(address).is_loopback and not to_loopback:
        return
    yield Packet(
        family=family,
        origin=origin,
        source=address,
        destination=destination.address,
        protocol=destination.protocol,
        port=destination.port,
        remembered=remembered,
    )


def _sources(objects: Sequence[Object], settings: Settings, family: Family) -> Iterator[Source]:
    """Yield the node's addresses, pods, endpoints, other hosts, and sources at the edges of source ranges."""
    local = addresses(settings.addresses, family)
    yield from (("node", address) for address in (*local, LOOPBACK[family]))
    yield from (("pod", address) for address in _PODS[family])
    yield from (("outside", address) for address in _OUTSIDE[family])
    ends = [
        address
        for item in _of_kind(objects, "EndpointSlice")
        for end in item["endpoints"]
        for address in end["addresses"]
    ]
    ranges = [
        text for item in _of_kind(objects, "Service") for text in item["spec"].get("loadBalancerSourceRanges", ())
    ]
    for address in (*addresses(ends, family), *_edges(networks(ranges, family))):
        yield _origin(address, local, family), address


def _origin(address: str, local: Sequence[str], family: Family) -> Origin:
    if address in local:
        return "node"
    return "pod" if within(address, networks(_PODS_HERE[family], family)) else "outside"


def _edges(ranges: Sequence[Network]) -> Iterator[str]:
    """Yield the first and last address of each range, and their neighbours outside."""
    for network in ranges:
        first, last = int(network.network_address), int(network.broadcast_address)
        for number in (first - 1, first, last, last + 1):
            if 0 < number < 2**network.max_prefixlen:
                address = type(network.network_address)(number)
                if not (address.is_multicast or address.is_reserved or address.is_loopback or address.is_unspecified):
                    yield str(address)


def _frontends(objects: Sequence[Object], settings: Settings, family: Family) -> Iterator[Destination]:
    local = addresses(settings.addresses, family)
    for service in _of_kind(objects, "Service"):
        for port in service["spec"]["ports"]:
            protocol = _protocol(port)
            known = _remembered_endpoints(objects, service, port, family)
            for address in _own_addresses(service, family):
                yield Destination(address, protocol, port["port"], known)
            if "nodePort" in port:
                for address in (*local, LOOPBACK[family]):
                    yield Destination(address, protocol, port["nodePort"], known)


def _near_misses(objects: Sequence[Object], settings: Settings, family: Family) -> Iterator[Destination]:
    """Yield frontends with other ports or protocols, unallocated addresses, other hosts, and endpoints."""
    local = addresses(settings.addresses, family)
    for service in _of_kind(objects, "Service"):
        for port in service["spec"]["ports"]:
            other = PROTOCOLS[PROTOCOLS.index(_protocol(port)) - 1]
            for address in _own_addresses(service, family):
                yield Destination(address, _protocol(port), 4444)
                yield Destination(address, other, port["port"])
                yield Destination(address, _protocol(port), port.get("nodePort", 30999))
            for address in (*local, *_UNCLAIMED_ADDRESSES[family], LOOPBACK[family]):
                yield Destination(address, _protocol(port), port["port"])
                yield Destination(address, other, port.get("nodePort", 30999))
    for item in _of_kind(objects, "EndpointSlice"):
        ends = addresses([address for end in item["endpoints"] for address in end["addresses"]], family)
        yield from (Destination(end, _protocol(port), port["port"]) for end in ends for port in item["ports"])
    if family == 4:
        yield Destination("127.0.0.2", "tcp", 30000)
    for node in _of_kind(objects, "Node"):
        yield from (Destination(address, "tcp", 4444) for address in addresses(node_ips(node), family))


def _own_addresses(service: Object, family: Family) -> tuple[str, ...]:
    """Return all addresses in a Service, including ingress IPs with ipMode Proxy."""
    spec, ingress = service["spec"], service["status"]["loadBalancer"].get("ingress", ())
    named = [*spec["clusterIPs"], *spec.get("externalIPs", ()), *(one.get("ip", "") for one in ingress)]
    return addresses(named, family)


def _remembered_endpoints(objects: Sequence[Object], service: Object, port: Object, family: Family) -> tuple[str, ...]:
    """Return the endpoints that affinity can remember for a sticky Service port, as "ip:port"."""
    if service["spec"]["sessionAffinity"] != "ClientIP":
        return ()
    mine = (service["metadata"]["namespace"], service["metadata"]["name"])
    found = [
        f"[{end}]:{one['port']}" if family == 6 else f"{end}:{one['port']}"
        for item in _of_kind(objects, "EndpointSlice")
        if (item["metadata"]["namespace"], item["metadata"]["labels"]["kubernetes.io/service-name"]) == mine
        for one in item["ports"]
        if (one["name"], one["protocol"]) == (port.get("name", ""), port["protocol"])
        for end in addresses([address for endpoint in item["endpoints"] for address in endpoint["addresses"]], family)
    ]
    return tuple(dict.fromkeys(found))


def _protocol(port: Object) -> Protocol:
    return next(protocol for protocol in PROTOCOLS if protocol.upper() == port["protocol"])


def _of_kind(objects: Sequence[Object], kind: str) -> list[Object]:
    return [item for item in objects if item["kind"] == kind]
