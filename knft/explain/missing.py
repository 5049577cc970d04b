"""Explains what does not exist: addresses, frontends and Services that no object and no rule has."""

from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches

from knft.explain.frontend_index import KIND_TEXTS, FrontendIndex
from knft.explain.outcomes import Probes
from knft.explain.query import AddressQuery, NodePortQuery
from knft.explain.sentences import Sentence, Statement, state
from knft.explain.words import listed, number_text
from knft.model.names import NamespacedName, ServicePortName
from knft.model.plan import FrontendKey, FrontendKind
from knft.protocols import NFT_PROTOCOLS

_OF_RULES = {
    Sentence.UNALLOCATED: Sentence.KERNEL_UNALLOCATED,
    Sentence.NOT_A_FRONTEND: Sentence.KERNEL_NOT_A_FRONTEND,
    Sentence.NODE_ADDRESS: Sentence.KERNEL_NODE_ADDRESS,
    Sentence.NO_NODE_PORT: Sentence.KERNEL_NO_NODE_PORT,
}
"""The sentences that rules alone allow instead of those about all Services."""
_Frontends = tuple[tuple[FrontendKey, ServicePortName], ...]


def missing_service(
    name: NamespacedName, existing: Iterable[NamespacedName], sentence: Sentence = Sentence.NO_SERVICE
) -> tuple[Statement, ...]:
    """Return that there is no such Service, and similar names."""
    names = similar_services(name, existing)
    unknown = state(sentence, service=name)
    return (unknown, state(Sentence.DID_YOU_MEAN, names=" or ".join(names))) if names else (unknown,)


def similar_services(name: NamespacedName, existing: Iterable[NamespacedName]) -> tuple[str, ...]:
    """Return the Service of a DNS name, those of the same name in other namespaces and of similar names, at most 3."""
    known = sorted(existing)
    by_dns = [str(each) for each in known if each == _service_of_dns_name(name)]
    same = [str(each) for each in known if each.name == name.name]
    in_namespace = {each.name: str(each) for each in known if each.namespace == name.namespace}
    near = [in_namespace[each] for each in get_close_matches(name.name, in_namespace, cutoff=0.7)]
    alike = get_close_matches(str(name), [str(each) for each in known], cutoff=0.8)
    return tuple(dict.fromkeys((*by_dns, *same, *near, *alike)))[:3]


def _service_of_dns_name(name: NamespacedName) -> NamespacedName | None:
    """Return the Service whose DNS name, as ``web.shop`` or ``web.shop.svc.cluster.local``, was taken for a name."""
    labels = name.name.split(".")
    is_dns_name = len(labels) > 1 and labels[2:3] in ([], ["svc"])
    return NamespacedName(labels[1], labels[0]) if is_dns_name else None


def missing_address(query: AddressQuery, index: FrontendIndex, probes: Probes) -> Iterator[Statement]:
    """Yield what happens to packets to an address, with or without a port, that is no frontend."""
    there, cidr = index.ports_at(query.address), index.service_cidr(query.address)
    if there:
        yield _other_port(query, there, index)
    elif probes.is_node_address(query.address):
        yield _node_address(query, index)
    elif cidr:
        yield _state(Sentence.UNALLOCATED, index, address=query.address, cidr=cidr)
    else:
        yield _state(Sentence.NOT_A_FRONTEND, index, what=query.what)
        yield from _node_port_of_node(query, index)


def _node_port_of_node(query: AddressQuery, index: FrontendIndex) -> Iterator[Statement]:
    """Yield which Service port has the NodePort of an address that may be another node's."""
    owner = index.owners.get((None, query.protocol, query.port))
    if owner is not None:
        port = number_text(query.port, query.protocol)
        yield state(Sentence.NODE_PORT_OF_NODE, port=port, owner=owner, address=query.address)


def _state(sentence: Sentence, index: FrontendIndex, **values: object) -> Statement:
    return state(sentence if index.knows_services else _OF_RULES[sentence], **values)


def unserved_address(query: AddressQuery, index: FrontendIndex) -> Statement:
    """Return what happens to packets to an address of a Service without rules."""
    cidr = index.service_cidr(query.address)
    if cidr:
        return state(Sentence.UNSERVED_DROPPED, address=query.address, cidr=cidr)
    return state(Sentence.UNSERVED_KEPT, address=query.address)


def _other_port(query: AddressQuery, there: _Frontends, index: FrontendIndex) -> Statement:
    """Return which ports an address has instead."""
    kinds = {index.kinds[key, owner] for key, owner in there}
    values = {
        "address": query.address,
        "services": _services(there),
        "port": number_text(query.port, query.protocol),
        "found": listed(dict.fromkeys(number_text(key[2], key[1]) for key, _ in there)),
    }
    if KIND_TEXTS[FrontendKind.CLUSTER_IP] not in kinds:
        return state(Sentence.EXTERNAL_OTHER_PORT, **values)
    protocols = [NFT_PROTOCOLS[key[1]] for key, _ in there if key[2] == query.port]
    if protocols:
        words = {"number": query.port, "found": listed(protocols), "protocol": NFT_PROTOCOLS[query.protocol]}
        return state(Sentence.CLUSTER_IP_OTHER_PROTOCOL, **{**values, **words})
    return state(Sentence.CLUSTER_IP_OTHER_PORT, **values)


def _node_address(query: AddressQuery, index: FrontendIndex) -> Statement:
    node_ports = index.node_ports(query.port)
    owner = next((owner for key, owner in node_ports if key[1] == query.protocol), None)
    if owner is not None:
        number = number_text(query.port, query.protocol)
        return state(Sentence.NODE_PORT_ELSEWHERE, owner=owner, port=number, address=query.address)
    if node_ports:
        return missing_node_port(NodePortQuery(query.text, query.port, query.protocol), (index,))
    article = "a " if index.knows_services else ""
    what = f"NodePort {number_text(query.port, query.protocol)}" if query.port else f"{article}frontend there"
    return _state(Sentence.NODE_ADDRESS, index, address=query.address, what=what)


def missing_node_port(query: NodePortQuery, indexes: Sequence[FrontendIndex]) -> Statement:
    """Return which protocols a NodePort has instead in any family, if it has any."""
    there = tuple(each for index in indexes for each in index.node_ports(query.port))
    if not there:
        return _state(Sentence.NO_NODE_PORT, indexes[0], port=number_text(query.port, query.protocol))
    found = listed(dict.fromkeys(NFT_PROTOCOLS[key[1]] for key, _ in there))
    protocol = NFT_PROTOCOLS[query.protocol]
    return state(
        Sentence.NODE_PORT_OTHER_PROTOCOL, services=_services(there), number=query.port, found=found, protocol=protocol
    )


def _services(there: _Frontends) -> str:
    return listed(dict.fromkeys(str(owner.service) for _, owner in there))


def address_kinds(there: _Frontends, index: FrontendIndex) -> Iterator[tuple[str, str]]:
    """Yield the kinds of an address, as in ``the cluster IP``, with the Services that have it as that."""
    kinds: dict[str, dict[str, None]] = {}
    for key, owner in there:
        kinds.setdefault(index.kinds[key, owner], {})[str(owner.service)] = None
    for kind, services in sorted(kinds.items()):
        yield kind, listed(services)
