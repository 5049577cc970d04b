"""FrontendIndex: the frontends and addresses that exist, from objects or from knft's rules in the kernel."""

from collections.abc import Iterable, Iterator, Mapping
from ipaddress import ip_address, ip_network
from types import MappingProxyType

from knft.decide.frontends import FrontendClaims, claimed_frontends
from knft.explain.cluster import Cluster
from knft.families import FAMILY_OF_VERSION, Family
from knft.interpret.compare.formatting import cidrs, format_address
from knft.interpret.compare.services import frontend_chains, frontend_owners
from knft.interpret.rules import Collection, Element, RuleSet
from knft.model.names import NamespacedName, ServicePortName
from knft.model.plan import FrontendKey, FrontendKind
from knft.protocols import NFT_PROTOCOLS, PROTOCOL_NAMES, Protocol

KIND_TEXTS = {
    FrontendKind.CLUSTER_IP: "the cluster IP",
    FrontendKind.LOAD_BALANCER_VIP: "a load balancer IP",
    FrontendKind.EXTERNAL_IP: "an external IP",
    FrontendKind.NODE_PORT: "a NodePort",
}
"""The kinds of frontends, for sentences. Rules do not tell external IPs and load balancer IPs apart."""
OUTER_KIND = "an external IP or load balancer IP"


class FrontendIndex:
    """The frontends of one family: who owns and who claims each, and their kinds by owner; the Service CIDRs.

    ``kinds`` are texts of ``KIND_TEXTS``, by frontend and Service port. ``knows_services`` tells whether the index is
    made from all Services: rules alone do not tell which Services exist. ``chains`` are the chains that the frontends
    lead to, if the index is made from rules.
    """

    def __init__(
        self,
        owners: Mapping[FrontendKey, ServicePortName],
        claims: Mapping[FrontendKey, tuple[ServicePortName, ...]],
        kinds: Mapping[tuple[FrontendKey, ServicePortName], str],
        service_cidrs: tuple[str, ...],
        *,
        knows_services: bool,
        chains: Mapping[FrontendKey, str] = MappingProxyType({}),
    ) -> None:
        """Index the frontends by Service, Service port and address."""
        self.owners, self.claims, self.kinds, self.service_cidrs = owners, claims, kinds, service_cidrs
        self.knows_services, self.chains = knows_services, chains
        self._claimed: dict[ServicePortName, list[FrontendKey]] = {}
        for key in sorted(claims, key=_position):
            for name in claims[key]:
                self._claimed.setdefault(name, []).append(key)
        self._ports: dict[NamespacedName, list[ServicePortName]] = {}
        for name in sorted(self._claimed):
            self._ports.setdefault(name.service, []).append(name)
        self._at: dict[str | None, list[tuple[FrontendKey, ServicePortName]]] = {}
        for key, owner in sorted(owners.items(), key=lambda item: (_position(item[0]), item[1])):
            self._at.setdefault(key[0], []).append((key, owner))

    def ports_of(self, service: NamespacedName) -> tuple[ServicePortName, ...]:
        """Return the ports of a Service that own or claim a frontend, sorted."""
        return tuple(self._ports.get(service, ()))

    def claimed_by(self, name: ServicePortName) -> tuple[FrontendKey, ...]:
        """Return the frontends that a Service port claims, those with an address first."""
        return tuple(self._claimed.get(name, ()))

    def owned_by(self, name: ServicePortName) -> tuple[FrontendKey, ...]:
        """Return the frontends that a Service port owns, those with an address first."""
        return tuple(key for key in self.claimed_by(name) if self.owners[key] == name)

    def ports_at(self, address: str) -> tuple[tuple[FrontendKey, ServicePortName], ...]:
        """Return the frontends of an address with their owners, sorted."""
        return tuple(self._at.get(address, ()))

    def node_ports(self, port: int) -> tuple[tuple[FrontendKey, ServicePortName], ...]:
        """Return the NodePorts of a number in all protocols, with their owners, sorted."""
        keys: Iterable[FrontendKey] = ((None, protocol, port) for protocol in NFT_PROTOCOLS)
        return tuple((key, self.owners[key]) for key in keys if key in self.owners)

    def service_cidr(self, address: str) -> str:
        """Return the Service CIDR that contains an address, "" if none does."""
        return next((cidr for cidr in self.service_cidrs if ip_address(address) in ip_network(cidr)), "")

    def services(self) -> frozenset[NamespacedName]:
        """Return the Services that own or claim a frontend."""
        return frozenset(self._ports)


def _position(key: FrontendKey) -> tuple[bool, str, int, str]:
    """Return the sort key of a frontend: NodePorts last."""
    address, protocol, port = key
    return (address is None, address or "", port, protocol)


def index_of_objects(cluster: Cluster, family: Family) -> FrontendIndex:
    """Return the frontends that objects claim."""
    objects = cluster.families[family]
    claims = FrontendClaims()
    claimants: dict[FrontendKey, list[ServicePortName]] = {}
    kinds: dict[tuple[FrontendKey, ServicePortName], str] = {}
    for name in sorted(objects.ports):
        claims.claim(name, objects.ports[name])
        for frontend in claimed_frontends(objects.ports[name]):
            claimants.setdefault(frontend.key, []).append(name)
            kinds[frontend.key, name] = KIND_TEXTS[frontend.kind]
    owners = {frontend.key: name for name in objects.ports for frontend in claims.owned_by(name)}
    listed = {key: tuple(names) for key, names in claimants.items()}
    return FrontendIndex(owners, listed, kinds, objects.node.service_cidrs, knows_services=cluster.knows_services)


def index_of_rules(rules: RuleSet) -> FrontendIndex:
    """Return the frontends in knft's rules: the comments of elements name Service ports."""
    family = FAMILY_OF_VERSION[rules.version]
    table = f"{family.nft} knft"
    cluster_ips = {item.key[0] for item in _elements(rules, f"{table} cluster-ips")}
    owners: dict[FrontendKey, ServicePortName] = {}
    chains: dict[FrontendKey, str] = {}
    kinds: dict[tuple[FrontendKey, ServicePortName], str] = {}
    targets = frontend_chains(rules)
    for (address, protocol, port), comment in frontend_owners(rules).items():
        name = _service_port_name(comment, protocol)
        key = (None if address is None else format_address(rules.version, address), name.protocol, port)
        owners[key] = name
        chains[key] = targets.get((address, protocol, port), "")
        kind = FrontendKind.NODE_PORT if address is None else FrontendKind.CLUSTER_IP
        kinds[key, name] = KIND_TEXTS[kind] if address is None or address in cluster_ips else OUTER_KIND
    claims = {key: (name,) for key, name in owners.items()}
    parts = (item.key[0] for item in _elements(rules, f"{table} service-cidrs"))
    listed = tuple(sorted(cidr for part in parts for cidr in _cidrs(rules, part)))
    return FrontendIndex(owners, claims, kinds, listed, knows_services=False, chains=chains)


def _elements(rules: RuleSet, name: str) -> tuple[Element, ...]:
    return rules.collections.get(name, Collection(name)).elements


def _cidrs(rules: RuleSet, part: int | tuple[int, int]) -> Iterator[str]:
    first, last = (part, part) if isinstance(part, int) else part
    yield from cidrs(rules.version, first, last)


def _service_port_name(comment: str, protocol: int) -> ServicePortName:
    """Return the Service port that a comment names (``str(ServicePortName)``)."""
    service, _, port = comment.partition(":")
    namespace, _, name = service.partition("/")
    spelled: dict[str, Protocol] = {value: key for key, value in NFT_PROTOCOLS.items()}
    return ServicePortName(namespace, name, port, spelled[PROTOCOL_NAMES[protocol]])


def frontend_text(key: FrontendKey) -> str:
    """Return a frontend as WHAT names it: ``10.96.0.10:80/tcp``, ``:30080/tcp``."""
    address, protocol, port = key
    where = "" if address is None else f"[{address}]" if ":" in address else address
    return f"{where}:{port}/{NFT_PROTOCOLS[protocol]}"
