"""Explains what does not exist: addresses, frontends and Services that no object and no rule has."""

from collections.abc import Iterable, Iterator
from difflib import get_close_matches

from knft.explain.facts import Facts
from knft.explain.outcomes import Probes
from knft.explain.query import AddressQuery, NodePortQuery
from knft.explain.sentences import Sentence, Statement, state
from knft.explain.words import listed, number_text
from knft.model.names import NamespacedName, ServicePortName
from knft.model.plan import FrontendKey
from knft.protocols import NFT_PROTOCOLS

_Frontends = tuple[tuple[FrontendKey, ServicePortName], ...]


def missing_service(
    name: NamespacedName, existing: Iterable[NamespacedName], sentence: Sentence = Sentence.NO_SERVICE
) -> tuple[Statement, ...]:
    """Return that there is no such Service, and similar names."""
    names = similar_services(name, existing)
    unknown = state(sentence, service=name)
    return (unknown, state(Sentence.DID_YOU_MEAN, names=" or ".join(names))) if names else (unknown,)


def similar_services(name: NamespacedName, existing: Iterable[NamespacedName]) -> tuple[str, ...]:
    """Return Services of the same name in other namespaces, then those with similar names, at most three."""
    known = sorted(existing)
    same = [str(each) for each in known if each.name == name.name]
    in_namespace = {each.name: str(each) for each in known if each.namespace == name.namespace}
    near = [in_namespace[each] for each in get_close_matches(name.name, in_namespace, cutoff=0.7)]
    alike = get_close_matches(str(name), [str(each) for each in known], cutoff=0.8)
    return tuple(dict.fromkeys((*same, *near, *alike)))[:3]


def missing_address(query: AddressQuery, facts: Facts, probes: Probes) -> Statement:
    """Return what happens to packets to an address, with or without a port, that is no frontend."""
    there = facts.ports_at(query.address)
    if there:
        return _other_port(query, there, facts)
    if probes.is_node_address(query.address):
        return _node_address(query, facts)
    cidr = facts.service_cidr(query.address)
    if cidr:
        return state(Sentence.UNALLOCATED, address=query.address, cidr=cidr)
    return state(Sentence.NOT_A_FRONTEND, what=query.text)


def unserved_address(query: AddressQuery, facts: Facts) -> Statement:
    """Return what happens to packets to an address of a Service without rules."""
    cidr = facts.service_cidr(query.address)
    if cidr:
        return state(Sentence.UNSERVED_DROPPED, address=query.address, cidr=cidr)
    return state(Sentence.UNSERVED_KEPT, address=query.address)


def _other_port(query: AddressQuery, there: _Frontends, facts: Facts) -> Statement:
    """Return which ports an address has instead."""
    kinds = {facts.kinds[key, owner] for key, owner in there}
    values = {
        "address": query.address,
        "services": _services(there),
        "port": number_text(query.port, query.protocol),
        "found": listed(dict.fromkeys(number_text(key[2], key[1]) for key, _ in there)),
    }
    if "the cluster IP" not in kinds:
        return state(Sentence.EXTERNAL_OTHER_PORT, **values)
    protocols = [NFT_PROTOCOLS[key[1]] for key, _ in there if key[2] == query.port]
    if protocols:
        words = {"number": query.port, "found": listed(protocols), "protocol": NFT_PROTOCOLS[query.protocol]}
        return state(Sentence.CLUSTER_IP_OTHER_PROTOCOL, **{**values, **words})
    return state(Sentence.CLUSTER_IP_OTHER_PORT, **values)


def _node_address(query: AddressQuery, facts: Facts) -> Statement:
    node_ports = facts.node_ports(query.port)
    owner = next((owner for key, owner in node_ports if key[1] == query.protocol), None)
    if owner is not None:
        number = number_text(query.port, query.protocol)
        return state(Sentence.NODE_PORT_ELSEWHERE, owner=owner, port=number, address=query.address)
    if node_ports:
        return missing_node_port(NodePortQuery(query.text, query.port, query.protocol), facts)
    what = f"NodePort {number_text(query.port, query.protocol)}" if query.port else "a frontend there"
    return state(Sentence.NODE_ADDRESS, address=query.address, what=what)


def missing_node_port(query: NodePortQuery, facts: Facts) -> Statement:
    """Return which protocols a NodePort has instead, if it has any."""
    there = facts.node_ports(query.port)
    if not there:
        return state(Sentence.NO_NODE_PORT, port=number_text(query.port, query.protocol))
    found = listed(NFT_PROTOCOLS[key[1]] for key, _ in there)
    protocol = NFT_PROTOCOLS[query.protocol]
    return state(
        Sentence.NODE_PORT_OTHER_PROTOCOL, services=_services(there), number=query.port, found=found, protocol=protocol
    )


def _services(there: _Frontends) -> str:
    return listed(dict.fromkeys(str(owner.service) for _, owner in there))


def address_kinds(there: _Frontends, facts: Facts) -> Iterator[tuple[str, str]]:
    """Yield the kinds of an address, as in ``the cluster IP``, with the Services that have it as that."""
    kinds: dict[str, dict[str, None]] = {}
    for key, owner in there:
        kinds.setdefault(facts.kinds[key, owner], {})[str(owner.service)] = None
    for kind, services in sorted(kinds.items()):
        yield kind, listed(services)
