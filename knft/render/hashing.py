"""Consistent hashing: the rules that choose the endpoint of a new connection by the hash of its client.

A Service port whose clients are hashed has a number, and a table for each class of its traffic: a slot for each value
of the hash, with an endpoint (``knft.render.maglev``). The tables are arrays of the maps ``hashed-endpoints-…``, whose
keys are the number, the class and the slot; all frontends of the Service port share them. The maps
``hashed-numbers-…`` and ``hashed-nodeport-numbers-…`` have the number of each frontend, as an array of one element.

Rules cannot look up one map with the value of another, except through a field of the packet: they put the number into
the packet's priority. For the hash of source address and port, and tables of 1021 slots:

    maglev-tcp-1021  looks up the number of the frontend ─▶ priority; dnat to the endpoint in the client's slot
                     the same with slot 0, for packets in flight when the table gets smaller

No chain belongs to a Service port. See docs/design/consistent-hashing.md.
"""

from collections.abc import Iterator

from knft.families import Family
from knft.model.plan import ServicePlan
from knft.nft import expressions as nft
from knft.nft.objects import ArrayName, Container
from knft.protocols import NFT_PROTOCOLS
from knft.render.affinity import EndpointLookup
from knft.render.frontends import CLASS_NUMBERS, TrafficClass
from knft.render.names import HASHED_MAP_PREFIX, numbers_map

SEED = 0x6B6E6674
"""The seed of the hash. It must be the same on all nodes and in all versions of knft, otherwise clients move."""

NUMBER_STEP, FIRST_NUMBER = 1 << 4, 1 << 30
"""The numbers of hashed Service ports are multiples of one, and at least the other.

A packet may leave the node with the number as its priority (docs/design/consistent-hashing.md#priority). The queueing
disciplines of Linux look at the lowest four bits, and treat such a priority as 0; or at the highest 16 bits, if these
are the handle of a qdisc or class, for which users choose small numbers.
"""


def hashing_containers(family: Family) -> tuple[Container, ...]:
    """Return the maps of tables and numbers, which exist only if a Service port needs them."""
    # libnftables 1.0.6 allows an integer without a size only in "typeof".
    integer, address = "numgen random mod 65536", f"{family.nft} daddr"
    priority = "meta priority"
    return tuple(
        Container(name, key, value, by_expression=True)
        for protocol in NFT_PROTOCOLS.values()
        for name, key, value in (
            (f"{HASHED_MAP_PREFIX}{protocol}", f"{priority} . {integer} . {integer}", f"{address} . {protocol} dport"),
            (numbers_map(protocol, nodeport=False), f"{address} . {protocol} dport . {integer}", priority),
            (numbers_map(protocol, nodeport=True), f"{protocol} dport . {integer}", priority),
        )
    )


def hashed_array(plan: ServicePlan, number: int, traffic_class: TrafficClass) -> ArrayName:
    """Return the name of the table for one class of a Service port's traffic."""
    container = f"{HASHED_MAP_PREFIX}{NFT_PROTOCOLS[plan.port.protocol]}"
    return ArrayName(container, (number, CLASS_NUMBERS[traffic_class]))


def hash_rules(
    lookup: EndpointLookup, protocol: str, traffic_class: TrafficClass, size: int, *, by_port: bool
) -> Iterator[nft.Rule]:
    """Yield the rules that translate packets to the endpoints in a table of ``size`` slots.

    ``lookup`` finds the number of the packet's frontend. With ``by_port``, the hash includes the source port.
    """
    source = nft.Payload(lookup.family, "saddr")
    fields = (source, nft.Payload(protocol, "sport")) if by_port else (source,)
    for modulus in (size, 1):
        slot = nft.Hash(fields, modulus, SEED)
        key = nft.Concat((nft.Meta("priority"), nft.Constant(CLASS_NUMBERS[traffic_class]), slot))
        to_endpoint = nft.DnatFromMap(lookup.family, key, f"{HASHED_MAP_PREFIX}{protocol}")
        yield nft.Rule((lookup.set_priority(nft.Constant(0)), to_endpoint))
    yield nft.Rule((nft.ClearPriority(),))
