"""What becomes of a packet, said of Services and endpoints alone: there is no rule in here.

Written from behaviour.md, whose sections are named where they speak: C.4, C.6, D.3 to D.6 (outcomes), I.5, I.6 (the
node's addresses, who is a pod); ``service_manifests`` has which Services count, and whom each has. The modes differ
where ``self.nftables`` is asked, and nowhere else.

Modelled is the first packet of a connection. Not modelled, and refused with ``NotModelledError``: a frontend that is
claimed twice, and an endpoint that is a frontend itself.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from ipaddress import ip_address, ip_network
from typing import Literal

from msgspec import Struct, field

from tests.interpret.model.service_manifests import (
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


class NotModelledError(Exception):
    """The model has no opinion, for the reason that it gives."""


class Packet(Struct, frozen=True, kw_only=True):
    """The first packet of a connection.

    ``origin`` is "node" for a process of the node, with an address of the node; "pod" for a pod of this node, whose
    packets come in by ``Settings.pod_interface``; "outside" for anybody else, pods of other nodes among them.
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
    """What the proxy was told, and what the node has."""

    addresses: tuple[str, ...]  # on the node's interfaces, but for loopback
    node_ips: tuple[str, ...] = ()  # empty: those of the Node
    nodeport_addresses: tuple[str, ...] | None = None  # CIDRs, "primary", "localhost", "all"
    service_cidrs: tuple[str, ...] = ()  # beside those of ServiceCIDRs
    masquerade_all: bool = False
    localhost_nodeports: bool = True  # of iptables mode alone
    detect_local: Detection = "ClusterCIDR"
    cluster_cidrs: tuple[str, ...] = ()
    interface: str = ""  # the bridge's name, or the prefix
    pod_interface: str = "cni0"


class Outcome(Struct, frozen=True):
    """What becomes of it: where it goes how often, and which of these targets do not see the client's address."""

    verdict: Verdict
    targets: Mapping[str, Fraction] = field(default_factory=dict)
    masqueraded: frozenset[str] = frozenset()


def outcome(objects: Sequence[Manifest], node: str, settings: Settings, packet: Packet, mode: Mode) -> Outcome:
    """Return what becomes of a packet on the node of that name; for many packets, keep a ``Proxy``."""
    return ServiceModel(objects, node, settings, packet.family, mode).outcome(packet)


class ServiceModel:
    """The proxy of one family on one node, in one mode."""

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
        """Return what becomes of a packet."""
        assert packet.family == self._family
        assert (packet.origin == "node") == self._is_local(packet.source), packet
        result = self._claimed(packet)
        if result.verdict != "delivered" and self._is_blocked_localnet(packet):
            return Outcome("dropped")
        return result

    def _claimed(self, packet: Packet) -> Outcome:
        claims = self._claims_of(packet.destination, packet.protocol, packet.port)
        if [kind for kind, _ in claims] == ["external IP", "VIP"] and claims[0][1] == claims[1][1]:
            # iptables: an external IP that is a VIP of the same Service too is not guarded (D.5(2), (3)).
            claims = claims[1:] if self.nftables else claims[:1]
        if len(claims) > 1:
            msg = "claimed twice"
            raise NotModelledError(msg)
        if not claims:
            return self._unclaimed(packet)
        ((kind, port),) = claims
        if kind == "VIP" and self._is_kept_out(packet, port):
            return Outcome("dropped")
        return self._internal(packet, port) if kind == "cluster IP" else self._external(packet, port)

    def _claims_of(self, address: str, protocol: str, number: int) -> list[tuple[Kind, ServicePort]]:
        named = self._claims.get((address, protocol, number), [])
        by_node_port = self._claims.get(("", protocol, number), []) if self._has_node_ports(address) else []
        return [*named, *by_node_port]

    def _internal(self, packet: Packet, port: ServicePort) -> Outcome:
        """Cluster IPs (C.6(3), (5), (7); D.5(1))."""
        if port.internal:
            return self._delivered(packet, port, port.internal, hide=self._is_hidden_to_cluster_ips(packet))
        # iptables: what comes in to an address of the node's own is not looked at (D.3).
        return self._refused(port) if self.nftables or self._passes(packet) else Outcome("untouched")

    def _external(self, packet: Packet, port: ServicePort) -> Outcome:
        """External IPs, VIPs and NodePorts (C.6(8), (10), (11), (13); D.5(2), (3), (5), (9))."""
        if not port.is_external_local:
            chosen, hide = port.anywhere, True
        elif self._is_pod(packet):  # short-circuited
            chosen, hide = port.anywhere, False
        elif packet.origin == "node":  # short-circuited
            chosen, hide = port.anywhere, True
        else:
            chosen, hide = port.here, False
        if chosen:
            # nftables: a cluster IP that is another Service's external IP counts as a cluster IP here (C.4(23)).
            of_cluster = self.nftables and packet.destination in self._cluster_ips
            return self._delivered(
                packet, port, chosen, hide=hide or (of_cluster and self._is_hidden_to_cluster_ips(packet))
            )
        # iptables: the node's own packets are not refused on their way out, only where they come in again (D.3).
        unseen = packet.origin == "node" and not self._is_local(packet.destination)
        return Outcome("untouched") if unseen and not self.nftables else self._refused(port)

    def _refused(self, port: ServicePort) -> Outcome:
        """Nobody at all: rejected; nobody on this node where the policy is Local: dropped (C.6(5); D.5)."""
        return Outcome("dropped" if port.anywhere else "rejected")

    def _unclaimed(self, packet: Packet) -> Outcome:
        """Packets to no frontend (C.4(10), (11), C.11)."""
        if not self.nftables:  # iptables: undefined ports and unallocated addresses are nobody's business
            return self._refused_everywhere(packet)
        if not self._passes(packet):
            return Outcome("untouched")
        if packet.destination in self._cluster_ips:
            return Outcome("rejected")
        return Outcome("dropped" if within(packet.destination, self._service_cidrs) else "untouched")

    def _refused_everywhere(self, packet: Packet) -> Outcome:
        """iptables: NodePorts without endpoints are refused on every address of the node (D.5(5))."""
        claims = self._claims.get(("", packet.protocol, packet.port), [])
        if not claims or not self._is_local(packet.destination) or any(port.external for _, port in claims):
            return Outcome("untouched")
        return self._refused(claims[0][1])

    def _is_kept_out(self, packet: Packet, port: ServicePort) -> bool:
        """Tell whether source ranges forbid it (C.6(9), (14); D.5(10))."""
        guarded = bool(port.ranges)
        if not self.nftables:  # iptables: nothing is guarded without endpoints
            guarded = guarded and bool(port.anywhere)
        node_ip = next(iter(addresses(self._node_ips, self._family)), LOOPBACK[self._family])
        vips = port.vips if within(node_ip, port.ranges) else ()
        return guarded and not within(packet.source, port.ranges) and packet.source not in vips

    def _delivered(self, packet: Packet, port: ServicePort, chosen: tuple[Endpoint, ...], *, hide: bool) -> Outcome:
        """To one of the chosen, each as likely; to the one remembered if it is among them (C.6(16), (17))."""
        kept = [end for end in chosen if port.is_sticky and str(end) == packet.remembered]
        ends = kept or chosen
        for end in ends:
            if self._claims_of(end.address, port.protocol, end.port) or within(end.address, self._service_cidrs):
                msg = "an endpoint that is a frontend itself"
                raise NotModelledError(msg)
        return Outcome(
            "delivered",
            {str(end): Fraction(1, len(ends)) for end in ends},
            frozenset(str(end) for end in ends if self._is_masqueraded(packet, end, hide=hide)),
        )

    def _is_masqueraded(self, packet: Packet, end: Endpoint, *, hide: bool) -> bool:
        if packet.origin != "node" and self._is_local(end.address):
            return False  # it comes in, and only what leaves is masqueraded (the hook of C.3, C.4(7))
        hairpin = packet.source == end.address
        if self.nftables:  # nftables: of endpoints of this node alone (C.6(1))
            hairpin = hairpin and end.is_local
        return hide or hairpin

    def _is_hidden_to_cluster_ips(self, packet: Packet) -> bool:
        """Tell whether cluster IPs hide the client (C.4(23); D.5(8))."""
        return self._settings.masquerade_all or (self._pods is not None and not self._is_pod(packet))

    def _pod_networks(self) -> tuple[Network, ...] | None:
        """Return where pods are, nowhere if they are told by interface; None if they cannot be told (I.6)."""
        mode, settings = self._settings.detect_local, self._settings
        if mode in ("BridgeInterface", "InterfaceNamePrefix"):
            return ()
        cidrs = settings.cluster_cidrs if mode == "ClusterCIDR" else self._node.get("spec", {}).get("podCIDRs") or ()
        return networks(cidrs, self._family)[:1] or None

    def _is_pod(self, packet: Packet) -> bool:
        mode, wanted, comes_by = self._settings.detect_local, self._settings.interface, self._settings.pod_interface
        if mode == "BridgeInterface":
            return packet.origin == "pod" and comes_by == wanted
        if mode == "InterfaceNamePrefix":
            return packet.origin == "pod" and comes_by.startswith(wanted)
        return within(packet.source, self._pods or ())

    def _node_port_addresses(self) -> set[str] | None:
        """Return the node's addresses with NodePorts, None for all of them (C.4(12), D.6, I.5)."""
        given = self._settings.nodeport_addresses
        if given is None:
            given = ("primary",) if self.nftables else ("all",)  # iptables: every address
        own = [str(ip_network(ip)) for ip in self._node_ips if not ip_address(ip).is_loopback]
        words = {"primary": own, "localhost": ["127.0.0.0/8", "::1/128"], "all": [*_EVERYWHERE]}
        wanted = networks([cidr for word in given for cidr in words.get(word, [word])], self._family)
        # knft: a family without a primary address has none, where kube-proxy opens all (README).
        is_open = not wanted and not (self.nftables and "primary" in given)
        if is_open or any(network.prefixlen == 0 for network in wanted):
            return None
        return {address for address in self._interfaces if within(address, wanted)}

    def _has_node_ports(self, address: str) -> bool:
        here = self._is_local(address) if self.node_ports_at is None else address in self.node_ports_at
        return here and (self._has_localhost() or not ip_address(address).is_loopback)

    def _has_localhost(self) -> bool:
        """iptables: NodePorts on loopback addresses of IPv4, where its addresses have one (C.11, D.1, D.6)."""
        wanted = not self.nftables and self._family == 4 and self._settings.localhost_nodeports
        return wanted and (self.node_ports_at is None or LOOPBACK[4] in self.node_ports_at)

    def _is_blocked_localnet(self, packet: Packet) -> bool:
        """iptables: nobody but loopback itself dials loopback where NodePorts are there (D.4)."""
        to_loopback = ip_address(packet.destination).is_loopback and not ip_address(packet.source).is_loopback
        return self._has_localhost() and to_loopback

    def _is_local(self, address: str) -> bool:
        return address in self._interfaces or ip_address(address).is_loopback

    def _passes(self, packet: Packet) -> bool:
        """Tell whether it is forwarded, or sent by the node: all but what only comes in."""
        return packet.origin == "node" or not self._is_local(packet.destination)
