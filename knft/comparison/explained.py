"""Sources of ``knft explain``: manifests with the rules rendered from them, and knft's tables in the kernel."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from ipaddress import ip_address

from knft.comparison.captures import Rules
from knft.comparison.kube_proxy_inputs import interface_addresses
from knft.comparison.node_name import node_warnings
from knft.comparison.rendered import RenderedNode, render_with_addresses
from knft.comparison.sides import address_ranges
from knft.config import Config
from knft.explain.cluster import Cluster, FamilyObjects
from knft.explain.outcomes import pod_addresses
from knft.explain.sources import KernelSource, NodeRules, ObjectSource
from knft.families import FAMILY_OF_VERSION, Family
from knft.interpret.compare.formatting import format_address
from knft.interpret.ranges import contains
from knft.interpret.rules import InSet, RuleSet
from knft.model import addresses
from knft.model.names import NamespacedName
from knft.model.objects import EndpointSlice, Node, ObjectChange, Service
from knft.sync.state import ServiceState


def object_source(
    changes: tuple[ObjectChange, ...],
    config: Config,
    local_addresses: Iterable[str] = (),
    warnings: tuple[str, ...] = (),
) -> ObjectSource:
    """Return the objects of manifests, on a node that has ``local_addresses`` besides those of its Node object."""
    own = (*interface_addresses(changes, config), *local_addresses)
    rendered = render_with_addresses(changes, config, own)
    rules = rendered_rules(rendered, config, own)
    warnings = (*warnings, *node_warnings(config, changes))
    return ObjectSource("manifests", cluster_of(rendered.states, changes), rules, warnings)


def rendered_rules(rendered: RenderedNode, config: Config, own: Iterable[str]) -> NodeRules:
    """Return the rules of a node, and which of its addresses, ``own``, are the node's and accept NodePorts."""
    own = tuple(own)
    node_ips = {
        family: state.node.node_ip or _node_ip(rendered.rules[family.version], own)
        for family, state in rendered.states.items()
    }
    accepting = {family: tuple(accepting_addresses(config, state, own)) for family, state in rendered.states.items()}
    on_loopback = frozenset(family for family in rendered.states if config.serves_localhost_nodeports(family))
    return NodeRules(rendered.rules, address_ranges(own), node_ips, accepting, on_loopback)


def cluster_of(
    states: Mapping[Family, ServiceState], changes: Iterable[ObjectChange], *, knows_services: bool = True
) -> Cluster:
    """Return the objects that knft tracks, and those of ``changes``, which are additions."""
    objects = [change.current for change in changes]
    slices: dict[NamespacedName, list[EndpointSlice]] = {}
    for item in objects:
        if isinstance(item, EndpointSlice) and item.metadata.proxy_labels.service_name:
            service = NamespacedName(item.metadata.namespace, item.metadata.proxy_labels.service_name)
            slices.setdefault(service, []).append(item)
    return Cluster(
        {family: _family_objects(state) for family, state in states.items()},
        {item.key: item for item in objects if isinstance(item, Service)},
        {service: tuple(listed) for service, listed in slices.items()},
        {item.metadata.name: item.metadata.proxy_labels.zone or "" for item in objects if isinstance(item, Node)},
        knows_services,
    )


def _family_objects(state: ServiceState) -> FamilyObjects:
    ports = {name: port for name in state.service_ports() if (port := state.service_port(name)) is not None}
    return FamilyObjects(state.node, ports, {name: state.endpoints(name) for name in ports})


def accepting_addresses(config: Config, state: ServiceState, own: Iterable[str]) -> list[str]:
    """Return the addresses of the node that accept NodePorts, the node's own address first."""
    node, family = state.node, state.node.family
    if config.nodeports_on_all_addresses(family):
        found = {text for text in addresses.of_family(own, family) if not addresses.is_loopback(text)}
    else:
        found = set(node.nodeport_ips)
    return sorted(found, key=lambda text: (text != node.node_ip, int(ip_address(text))))


def kernel_source(rules: Rules, local_addresses: Iterable[str], warnings: tuple[str, ...] = ()) -> KernelSource:
    """Return knft's tables in the kernel of a machine that has these addresses."""
    return KernelSource("knft's tables in this machine's kernel", kernel_rules(rules, local_addresses), warnings)


def kernel_rules(rules: Rules, local_addresses: Iterable[str]) -> NodeRules:
    """Return the rules of a machine, and which of its addresses are the node's and accept NodePorts."""
    own = tuple(local_addresses)
    accepting: dict[Family, tuple[str, ...]] = {}
    node_ips: dict[Family, str] = {}
    for version, found in rules.items():
        family = FAMILY_OF_VERSION[version]
        accepting[family] = _ordered(found, frozenset(_accepting_in_rules(found, own)))
        node_ips[family] = _node_ip(found, own, accepting[family])
    return NodeRules(rules, address_ranges(own), node_ips, accepting)


def _node_ip(rules: RuleSet, own: Iterable[str], accepting: tuple[str, ...] = ()) -> str:
    """Return the address that the node probably uses as its source, "" if it has none."""
    reachable = addresses.reachable_addresses(own, FAMILY_OF_VERSION[rules.version])
    return next(iter(_ordered(rules, frozenset((*accepting, *reachable)), accepting)), "")


def _ordered(rules: RuleSet, texts: frozenset[str], preferred: Collection[str] = ()) -> tuple[str, ...]:
    """Return addresses in numeric order; those of bridges of pods last, among the others the preferred ones first."""
    pods = pod_addresses(rules) or ()

    def rank(text: str) -> tuple[bool, bool, int]:
        number = int(ip_address(text))
        return (contains(pods, number), text not in preferred, number)

    return tuple(sorted(texts, key=rank))


def _accepting_in_rules(rules: RuleSet, own: Iterable[str]) -> Iterator[str]:
    """Yield the addresses that accept NodePorts: those of a set, or all of the node if no rule uses the set."""
    family = FAMILY_OF_VERSION[rules.version]
    accepting = f"{family.nft} knft nodeport-ips"
    chain = rules.chains.get(f"{family.nft} knft services")
    steps = (step for rule in (chain.rules if chain is not None else ()) for step in rule.steps)
    if any(isinstance(step, InSet) and step.collection == accepting for step in steps):
        numbers = (item.key[0] for item in rules.collections[accepting].elements)
        yield from (format_address(rules.version, number) for number in numbers if isinstance(number, int))
    else:
        yield from addresses.reachable_addresses(own, family)
