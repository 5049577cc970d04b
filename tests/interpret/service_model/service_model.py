"""A model that derives the outcome of a packet from Services and endpoints, without rules.

It follows docs/behaviour/nftables.md, docs/behaviour/iptables.md and docs/behaviour/configuration.md#node-addresses.
``service_manifests`` selects Services and their endpoints. The modes only differ in branches on ``self.nftables``.

The model covers the first packet of a connection. It raises ``NotModelledError`` for a frontend that two Services claim
and for an endpoint that is a frontend.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from ipaddress import ip_address, ip_network
from typing import Literal

from msgspec import Struct, field

from knft.interpret.jhash import hash_slot
from knft.nft.objects import Target
from knft.render.hashing import SEED
from knft.render.maglev import maglev_table, table_size
from tests.support.service_manifests import (
    Endpoint,
    Family,
    Kind,
    Manifest,
    Network,
    ServicePort,
    addresses,
    networks,
    node_ips,
    service_ports,
    within,
    zone_of,
)

Mode = Literal["nftables", "iptables"]
Detection = Literal["ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix"]
Verdict = Literal["delivered", "rejected", "dropped", "untouched"]

LOOPBACK: Mapping[Family, str] = {4: "127.0.0.1", 6: "::1"}
_EVERYWHERE = ("0.0.0.0/0", "::/0")
_LOOPBACK_NETWORKS = ("127.0.0.0/8", "::1/128")


_SIZES: Mapping[Family, int] = {4: 4, 6: 16}
"""The sizes of addresses in bytes."""


class NotModelledError(Exception):
    """The model does not cover this packet, for the given reason."""


class Packet(Struct, frozen=True, kw_only=True):
    """The first packet of a connection.

    ``origin`` is "node" for a process of the node, with an address of the node; "pod" for a pod of this node, whose
    packets arrive by ``Settings.pod_interface``; "outside" for all others, including pods of other nodes.
    ``remembered`` is the endpoint, as "ip:port", to which session affinity last sent this source address.
    """

    family: Family
    origin: Literal["node", "pod", "outside"]
    source: str
    destination: str
    protocol: Literal["tcp", "udp", "sctp"]
    port: int
    remembered: str | None = None


class Settings(Struct, frozen=True, kw_only=True):
    """The configuration of the proxy, and the addresses and interfaces of the node."""

    addresses: tuple[str, ...]  # on the node's interfaces, except loopback
    node_ips: tuple[str, ...] = ()  # empty: those of the Node
    nodeport_addresses: tuple[str, ...] | None = None  # CIDRs, "primary", "localhost", "all"
    service_cidrs: tuple[str, ...] = ()  # beside those of ServiceCIDRs
    masquerade_all: bool = False
    iptables_localhost_nodeports: bool = True
    loopback_gate: bool = False  # KubeProxyNFTablesLocalhostNodePorts, of nftables mode alone
    detect_local: Detection = "ClusterCIDR"
    cluster_cidrs: tuple[str, ...] = ()
    interface: str = ""  # the bridge's name, or the prefix
    pod_interface: str = "cni0"


class Outcome(Struct, frozen=True):
    """The outcome of a packet: the share of each target, and the targets that do not see the client's address."""

    verdict: Verdict
    targets: Mapping[str, Fraction] = field(default_factory=dict)
    masqueraded: frozenset[str] = frozenset()


def outcome(objects: Sequence[Manifest], node: str, settings: Settings, packet: Packet, mode: Mode) -> Outcome:
    """Return the outcome of a packet on the named node; for many packets, create one ``ServiceModel``."""
    return ServiceModel(objects, node, settings, packet.family, mode).outcome(packet)


class ServiceModel:
    """The proxy of one IP family on one node, in one mode."""

    def __init__(self, objects: Sequence[Manifest], node: str, settings: Settings, family: Family, mode: Mode) -> None:
        self.nftables = mode == "nftables"
        self._family: Family = family
        self._settings = settings
        found = [item for item in objects if item["kind"] == "Node" and item["metadata"]["name"] == node]
        self._node: Manifest = found[0] if found else {}
        self._node_ips = settings.node_ips or node_ips(self._node)
        self._interfaces = {*addresses(settings.addresses, family), LOOPBACK[family]}
        self.node_ports_at = self._node_port_addresses()
        self.ports = service_ports(objects, node, zone_of(self._node), family)
        self._cluster_ips = {port.cluster_ip for port in self.ports}
        objects_cidrs = [cidr for item in objects if item["kind"] == "ServiceCIDR" for cidr in item["spec"]["cidrs"]]
        self._service_cidrs = networks([*settings.service_cidrs, *objects_cidrs], family)
        self._pods = self._pod_networks()
        self._claims: dict[tuple[str, str, int], list[tuple[Kind, ServicePort]]] = {}
        for port in self.ports:
            for kind, address, number in dict.fromkeys(port.frontends()):
                self._claims.setdefault((address, port.protocol, number), []).append((kind, port))

    def outcome(self, packet: Packet) -> Outcome:
        """Return the outcome of a packet."""
        assert packet.family == self._family
        assert (packet.origin == "node") == self._is_local(packet.source), packet
        result = self._claimed(packet)
        if result.verdict != "delivered" and self._is_blocked_localnet(packet):
            return Outcome("dropped")
        return result

    def _claimed(self, packet: Packet) -> Outcome:
        claims = self._claims_of(packet.destination, packet.protocol, packet.port)
        if [kind for kind, _ in claims] == ["external IP", "VIP"] and claims[0][1] == claims[1][1]:
            # iptables: source ranges do not apply to an external IP that is also a load balancer IP of the Service.
            claims = claims[1:] if self.nftables else claims[:1]
        if len(claims) > 1:
            msg = "contested frontend"
            raise NotModelledError(msg)
        if not claims:
            return self._unclaimed(packet)
        ((kind, port),) = claims
        if kind == "VIP" and self._is_blocked_by_source_ranges(packet, port):
            return Outcome("dropped")
        return self._internal(packet, port) if kind == "cluster IP" else self._external(packet, port)

    def _claims_of(self, address: str, protocol: str, number: int) -> list[tuple[Kind, ServicePort]]:
        named = self._claims.get((address, protocol, number), [])
        by_node_port = self._claims.get(("", protocol, number), []) if self._has_node_ports(address) else []
        return [*named, *by_node_port]

    def _internal(self, packet: Packet, port: ServicePort) -> Outcome:
        """Return the outcome at a cluster IP (docs/behaviour/nftables.md#cluster-ip)."""
        if port.internal:
            return self._delivered(packet, port, port.internal, masquerade=self._masquerades_cluster_ip_traffic(packet))
        # iptables: packets to the node itself skip these rules (docs/behaviour/iptables.md#jump-rules).
        return self._refused(port) if self.nftables or self._passes(packet) else Outcome("untouched")

    def _external(self, packet: Packet, port: ServicePort) -> Outcome:
        """Return the outcome at an external IP, load balancer IP or NodePort.

        docs/behaviour/nftables.md#external-traffic and docs/behaviour/iptables.md#service-ports.
        """
        if not port.is_external_local:
            chosen, masquerade = port.cluster_endpoints, True
        elif self._is_pod(packet):  # short-circuited
            chosen, masquerade = port.cluster_endpoints, False
        elif packet.origin == "node":  # short-circuited
            chosen, masquerade = port.cluster_endpoints, True
        else:
            chosen, masquerade = port.local_endpoints, False
        if chosen:
            # nftables: an external IP that is another Service's cluster IP is masqueraded like a cluster IP
            # (docs/behaviour/nftables.md#masquerade-to-cluster-ips).
            of_cluster = self.nftables and packet.destination in self._cluster_ips
            return self._delivered(
                packet,
                port,
                chosen,
                masquerade=masquerade or (of_cluster and self._masquerades_cluster_ip_traffic(packet)),
            )
        # iptables: the node's own packets are not rejected at output, only when loopback receives them again.
        unseen = packet.origin == "node" and not self._is_local(packet.destination)
        return Outcome("untouched") if unseen and not self.nftables else self._refused(port)

    def _refused(self, port: ServicePort) -> Outcome:
        """Reject packets to a Service port without endpoints; drop them if policy Local excludes all endpoints."""
        return Outcome("dropped" if port.cluster_endpoints else "rejected")

    def _unclaimed(self, packet: Packet) -> Outcome:
        """Return the outcome of a packet to no frontend (docs/behaviour/nftables.md#undefined-ports)."""
        if not self.nftables:  # iptables: there are no rules for undefined ports and unallocated addresses
            return self._refused_everywhere(packet)
        if self._is_rejected_on_loopback(packet):
            return Outcome("rejected")
        if not self._passes(packet):
            return Outcome("untouched")
        if packet.destination in self._cluster_ips:
            return Outcome("rejected")
        return Outcome("dropped" if within(packet.destination, self._service_cidrs) else "untouched")

    def _is_rejected_on_loopback(self, packet: Packet) -> bool:
        """Tell whether a packet goes to a NodePort that is not served there (docs/behaviour/loopback-nodeports.md)."""
        if not self._settings.loopback_gate or not ip_address(packet.destination).is_loopback:
            return False
        words = self._settings.nodeport_addresses or ()
        wanted = [cidr for word in words for cidr in (_LOOPBACK_NETWORKS if word == "localhost" else (word,))]
        is_served = any(network.is_loopback for network in networks(wanted, self._family))
        is_node_port = ("", packet.protocol, packet.port) in self._claims
        return is_node_port and not (is_served and packet.protocol == "tcp")

    def _refused_everywhere(self, packet: Packet) -> Outcome:
        """Reject packets to NodePorts without endpoints at all addresses of the node, as iptables mode does."""
        claims = self._claims.get(("", packet.protocol, packet.port), [])
        if not claims or not self._is_local(packet.destination) or any(port.external for _, port in claims):
            return Outcome("untouched")
        return self._refused(claims[0][1])

    def _is_blocked_by_source_ranges(self, packet: Packet, port: ServicePort) -> bool:
        """Tell whether loadBalancerSourceRanges block a packet (docs/behaviour/nftables.md#source-ranges)."""
        guarded = bool(port.ranges)
        if not self.nftables:  # iptables: source ranges only apply to Service ports with endpoints
            guarded = guarded and bool(port.cluster_endpoints)
        node_ip = next(iter(addresses(self._node_ips, self._family)), LOOPBACK[self._family])
        vips = port.vips if within(node_ip, port.ranges) else ()
        return guarded and not within(packet.source, port.ranges) and packet.source not in vips

    def _delivered(
        self, packet: Packet, port: ServicePort, chosen: tuple[Endpoint, ...], *, masquerade: bool
    ) -> Outcome:
        """Deliver to the chosen endpoints, or to the remembered one if it is among them."""
        kept = [end for end in chosen if port.is_sticky and str(end) == packet.remembered]
        ends = kept or chosen
        for end in ends:
            if self._claims_of(end.address, port.protocol, end.port) or within(end.address, self._service_cidrs):
                msg = "an endpoint that is a frontend itself"
                raise NotModelledError(msg)
        shares = self._shares(packet, port, ends)
        return Outcome(
            "delivered",
            shares,
            frozenset(
                str(end)
                for end in ends
                if str(end) in shares and self._is_masqueraded(packet, end, masquerade=masquerade)
            ),
        )

    def _shares(self, packet: Packet, port: ServicePort, ends: Sequence[Endpoint]) -> Mapping[str, Fraction]:
        """Return the share of each endpoint: equal ones, or by the hash (docs/behaviour/load-balancing.md)."""
        if not self.nftables or port.is_sticky or port.load_balancing == "random":
            return {str(end): Fraction(1, len(ends)) for end in ends}
        names = {(end.address, end.port): str(end) for end in ends}
        table = _table(frozenset(names))
        if port.load_balancing == "source-hash":
            slot = hash_slot([(int(ip_address(packet.source)), _SIZES[self._family])], len(table), SEED)
            return {names[table[slot]]: Fraction(1)}
        # The packets have no source port, so each value of the hash is as likely as another.
        return {names[target]: Fraction(slots, len(table)) for target, slots in Counter(table).items()}

    def _is_masqueraded(self, packet: Packet, end: Endpoint, *, masquerade: bool) -> bool:
        if packet.origin != "node" and self._is_local(end.address):
            return False  # packets to local sockets do not traverse postrouting, where masquerading takes place
        hairpin = packet.source == end.address
        if self.nftables:  # nftables: only for endpoints on this node
            hairpin = hairpin and end.is_local
        return masquerade or hairpin

    def _masquerades_cluster_ip_traffic(self, packet: Packet) -> bool:
        """Tell whether a packet to a cluster IP is masqueraded, whatever its endpoint."""
        return self._settings.masquerade_all or (self._pods is not None and not self._is_pod(packet))

    def _pod_networks(self) -> tuple[Network, ...] | None:
        """Return the pod networks: empty if interfaces identify pods, None if pods cannot be identified."""
        mode, settings = self._settings.detect_local, self._settings
        if mode in ("BridgeInterface", "InterfaceNamePrefix"):
            return ()
        cidrs = settings.cluster_cidrs if mode == "ClusterCIDR" else self._node.get("spec", {}).get("podCIDRs") or ()
        return networks(cidrs, self._family)[:1] or None

    def _is_pod(self, packet: Packet) -> bool:
        mode, wanted, interface = self._settings.detect_local, self._settings.interface, self._settings.pod_interface
        if mode == "BridgeInterface":
            return packet.origin == "pod" and interface == wanted
        if mode == "InterfaceNamePrefix":
            return packet.origin == "pod" and interface.startswith(wanted)
        return within(packet.source, self._pods or ())

    def _node_port_addresses(self) -> set[str] | None:
        """Return the node's addresses with NodePorts, None for all (docs/behaviour/configuration.md#node-addresses)."""
        given = self._settings.nodeport_addresses
        if given is None:
            given = ("primary",) if self.nftables else ("all",)  # iptables: every address
        own = [str(ip_network(ip)) for ip in self._node_ips if not ip_address(ip).is_loopback]
        words = {"primary": own, "localhost": [*_LOOPBACK_NETWORKS], "all": [*_EVERYWHERE]}
        wanted = networks([cidr for word in given for cidr in words.get(word, [word])], self._family)
        # If a family has no primary address, knft opens no NodePorts, and kube-proxy opens them at all addresses.
        is_open = not wanted and not (self.nftables and "primary" in given)
        if is_open or any(network.prefixlen == 0 for network in wanted):
            return None
        return {address for address in self._interfaces if within(address, wanted)}

    def _has_node_ports(self, address: str) -> bool:
        here = self._is_local(address) if self.node_ports_at is None else address in self.node_ports_at
        return here and (self._has_loopback_node_ports() or not ip_address(address).is_loopback)

    def _has_loopback_node_ports(self) -> bool:
        """Tell whether NodePorts are reachable at IPv4 loopback, which only iptables mode supports."""
        wanted = not self.nftables and self._family == 4 and self._settings.iptables_localhost_nodeports
        return wanted and (self.node_ports_at is None or LOOPBACK[4] in self.node_ports_at)

    def _is_blocked_localnet(self, packet: Packet) -> bool:
        """Tell whether iptables mode drops a packet to loopback because its source is not a loopback address."""
        to_loopback = ip_address(packet.destination).is_loopback and not ip_address(packet.source).is_loopback
        return self._has_loopback_node_ports() and to_loopback

    def _is_local(self, address: str) -> bool:
        return address in self._interfaces or ip_address(address).is_loopback

    def _passes(self, packet: Packet) -> bool:
        """Tell whether a packet is forwarded or sent by the node, as opposed to delivered locally."""
        return packet.origin == "node" or not self._is_local(packet.destination)


@lru_cache(maxsize=256)
def _table(targets: frozenset[Target]) -> tuple[Target, ...]:
    return maglev_table(targets, table_size(len(targets)))
