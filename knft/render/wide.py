"""The wide layout: a Service port with many frontends stores each endpoint once, and not once for each frontend.

The other layout, in ``knft.render.fragment``, has a copy of the endpoints for each frontend. It needs no chain of its
own, but a Service port with 50 frontends and 200 endpoints would need 10 000 elements. Such a *wide* Service port has a
number K and chains of its own:

    wide-K-cluster   picks one of the cluster endpoints from a map that is keyed by K, traffic class and index
    wide-K-local     does the same with the endpoints on this node
    wide-K-external  applies the external traffic policy, then continues in one of the two
    wide-K-sources   drops clients outside loadBalancerSourceRanges; it has one rule for each range

With session affinity, ``wide-K-cluster`` and ``wide-K-local`` begin with the rules of ``knft.render.affinity``, and
``wide-K-cluster-known-0`` and so on have rules for 64 indexes each.

See docs/design/wide-layout.md. The number is derived from the Service port's name, so it is the same after a restart.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial

from msgspec import Struct

from knft.config import Config
from knft.families import Family, NftFamily
from knft.model.names import ServicePortName
from knft.model.plan import Frontend, FrontendKind, ServicePlan, TrafficAction
from knft.nft import expressions as nft
from knft.nft.objects import COMMENT_BYTES, ArrayName, Chain, Container, Contents
from knft.protocols import NFT_PROTOCOLS
from knft.render import frontends
from knft.render.affinity import MAX_BLOCK_SIZE, EndpointLookup, affinity_rules, known_rules
from knft.render.counters import count_denied_source
from knft.render.frontends import CLASS_NUMBERS, TrafficClass, endpoints_of
from knft.render.hashing import FIRST_NUMBER, NUMBER_STEP
from knft.render.names import SERVICE_IPS, SERVICE_NODEPORTS, WIDE_IDS, WIDE_MAP_PREFIX, WIDE_PREFIX
from knft.render.pools import external_rules

COPIES_FACTOR = 4
"""A Service port is wide if its copies are more than this times the number of things that are copied."""

MAPS = 8
"""The number of endpoint maps for each protocol, over which Service ports are spread by number.

A new rule that uses a map makes the kernel walk the whole map: 13 ms for 100 000 endpoints on Linux 6.18.
"""

NUMBERS = 1 << 31
"""libnftables 1.0.6 lists larger constants as negative numbers."""

_SERVICE_MAPS = (SERVICE_IPS, SERVICE_NODEPORTS)
ALL_CLASSES = tuple(CLASS_NUMBERS)


class WidePort(Struct, frozen=True, gc=False):
    """The number of a wide Service port, or of one whose clients are hashed.

    ``endpoints`` and ``source_ranges`` tell which of the two it stores under this number, once for all frontends;
    ``is_hashed`` tells whether it stores its endpoints in tables instead (``knft.render.hashing``).
    """

    number: int
    endpoints: bool
    source_ranges: bool
    is_hashed: bool = False


class WideNumbers:
    """Assigns numbers to wide and hashed Service ports during one sync.

    ``changed`` holds the numbers that the sync assigned, by Service port; None for a Service port that loses its own.
    """

    def __init__(self, previous: Mapping[ServicePortName, int]) -> None:
        """Start from the numbers before the sync."""
        self._previous = previous
        self._taken: set[int] | None = None
        self.changed: dict[ServicePortName, int | None] = {}

    def assign(self, name: ServicePortName, *, is_hashed: bool = False) -> int:
        """Return the number of a Service port, which stays the same as long as it is wide or hashed."""
        number = self._previous.get(name)
        if number is None or is_hashed is not is_for_hashing(number):
            number = self._new_number(name, is_hashed=is_hashed)
        self.changed[name] = number
        return number

    def release(self, name: ServicePortName) -> None:
        """Release the number of a Service port that was deleted or is no longer wide."""
        if name in self._previous:
            self.changed[name] = None

    def release_unassigned(self, preserved: Collection[ServicePortName] = ()) -> None:
        """Release all numbers that were not assigned, except those of ``preserved`` Service ports."""
        for name in self._previous.keys() - self.changed.keys() - set(preserved):
            self.changed[name] = None

    def _new_number(self, name: ServicePortName, *, is_hashed: bool) -> int:
        if self._taken is None:
            # A number that this sync releases stays taken: packets in flight may still be in its chains.
            self._taken = set(self._previous.values())
        first, step = (FIRST_NUMBER, NUMBER_STEP) if is_hashed else (0, 1)
        numbers = range(first, NUMBERS, step)
        position = int.from_bytes(hashlib.sha256("\0".join(name).encode()).digest()[:4]) % len(numbers)
        while numbers[position] in self._taken or is_hashed is not is_for_hashing(numbers[position]):
            position = (position + 1) % len(numbers)
        self._taken.add(numbers[position])
        return numbers[position]


def is_for_hashing(number: int) -> bool:
    """Tell which kind of number it is, so that a Service port that changes gets the one that it has after a restart."""
    return number in range(FIRST_NUMBER, NUMBERS, NUMBER_STEP)


def read_numbers(found: Contents, names: Iterable[ServicePortName]) -> dict[ServicePortName, int]:
    """Return the numbers of wide Service ports in a table: those in the verdicts whose comments contain the names.

    So two Service ports whose names have the same hash keep their numbers after a restart.
    """
    numbers: dict[tuple[str, str], int] = {}
    for (container, key), entry in found.entries.items():
        if container in _SERVICE_MAPS and isinstance(entry.verdict, nft.Goto):
            number = wide_number(entry.verdict.chain)
            if number is not None:
                numbers[entry.comment, str(key[-2])] = number
    if not numbers:
        return {}
    by_name = {name: numbers.get((str(name)[:COMMENT_BYTES], NFT_PROTOCOLS[name.protocol])) for name in names}
    count = Counter(by_name.values())
    # Other programs may have changed the table, and a comment that was cut may fit several names.
    return {name: number for name, number in by_name.items() if number is not None and count[number] == 1}


def wide_port(plan: ServicePlan, numbers: WideNumbers) -> WidePort | None:
    """Return what a Service port stores by number; None if it is neither wide nor hashed."""
    is_hashed, source_ranges = plan.port.hashes_clients, _has_wide_source_ranges(plan)
    endpoints = not is_hashed and _has_wide_endpoints(plan)
    if endpoints or source_ranges or is_hashed:
        number = numbers.assign(plan.name, is_hashed=is_hashed)
        return WidePort(number, endpoints, source_ranges, is_hashed)
    numbers.release(plan.name)
    return None


def _has_wide_endpoints(plan: ServicePlan) -> bool:
    """Return whether a copy of the endpoints for each frontend would cost too many elements."""
    limit = COPIES_FACTOR * (len(plan.frontends) + len(plan.endpoints.all_reachable))
    if len(plan.frontends) * (len(plan.endpoints.cluster) + len(plan.endpoints.local)) <= limit:
        return False  # Nearly all Service ports: no frontend has more copies than these.
    copies = sum(
        len(endpoints_of(plan, traffic_class))
        for frontend in plan.frontends
        for traffic_class in frontends.traffic_classes(plan, frontend)
    )
    return copies > limit


def _has_wide_source_ranges(plan: ServicePlan) -> bool:
    """Return whether a copy of the source ranges for each load balancer VIP would cost too many elements."""
    ranges = len(plan.allowed_sources)
    if not ranges:
        return False
    vips = sum(frontend.kind is FrontendKind.LOAD_BALANCER_VIP for frontend in plan.frontends)
    return vips * ranges > COPIES_FACTOR * (vips + ranges)


def wide_containers(family: NftFamily) -> tuple[Container, ...]:
    """Return the maps of the endpoints of wide Service ports, and of their IDs: keyed by number, class and index."""
    # libnftables 1.0.6 allows dnat to a map's port only if the map's type names the packet's protocol.
    number = "numgen random mod 65536"
    key = f"{number} . {number} . {number}"
    endpoints = (
        Container(f"{WIDE_MAP_PREFIX}{protocol}-{index}", key, f"{family} daddr . {protocol} dport", by_expression=True)
        for protocol in NFT_PROTOCOLS.values()
        for index in range(MAPS)
    )
    return (*endpoints, Container(WIDE_IDS, key, "meta priority", by_expression=True))


def wide_array(plan: ServicePlan, number: int, traffic_class: TrafficClass) -> ArrayName:
    """Return the name of the array that holds the endpoints for one class of traffic."""
    container = f"{WIDE_MAP_PREFIX}{NFT_PROTOCOLS[plan.port.protocol]}-{number % MAPS}"
    return ArrayName(container, (number, CLASS_NUMBERS[traffic_class]))


def wide_ids_array(number: int, traffic_class: TrafficClass) -> ArrayName:
    """Return the name of the array that holds the IDs of these endpoints."""
    return ArrayName(WIDE_IDS, (number, CLASS_NUMBERS[traffic_class]))


def wide_classes(plan: ServicePlan) -> list[TrafficClass]:
    """Return the classes of traffic for which a Service port needs endpoints."""
    classes = {found for frontend in plan.frontends for found in frontends.traffic_classes(plan, frontend)}
    return sorted(classes)


def wide_verdict(plan: ServicePlan, frontend: Frontend, wide: WidePort) -> nft.Goto | None:
    """Return the verdict for a frontend's packets; None if the traffic is rejected."""
    classes = frontends.traffic_classes(plan, frontend)
    if not classes:
        return None
    return nft.Goto(wide_chain_name(wide, classes[0] if frontends.is_internal(frontend) else "external"))


def wide_chain_name(wide: WidePort, purpose: str) -> str:
    """Return the name of a chain of a wide Service port; ``purpose`` is a traffic class, external or sources."""
    return f"{WIDE_PREFIX}{wide.number}-{purpose}"


_CHAIN_NAME = re.compile(rf"{WIDE_PREFIX}(\d{{1,10}})-[\w-]+")


def wide_number(chain: str) -> int | None:
    """Return the number in the name of a wide Service port's chain; None if the name is another chain's."""
    found = _CHAIN_NAME.fullmatch(chain)
    return int(found[1]) if found is not None else None


def wide_chains(plan: ServicePlan, wide: WidePort, family: Family, config: Config) -> Iterator[Chain]:
    """Yield the chains of a wide Service port."""
    if wide.endpoints:
        for traffic_class in wide_classes(plan):
            yield from _endpoint_chains(plan, wide, traffic_class, family.nft)
        external = [frontend for frontend in plan.frontends if not frontends.is_internal(frontend)]
        if external and plan.external is not TrafficAction.REJECT:
            rules = external_rules(plan.external, partial(wide_chain_name, wide), family, config)
            yield Chain(wide_chain_name(wide, "external"), rules)
    if wide.source_ranges:
        yield Chain(wide_chain_name(wide, "sources"), tuple(_source_rules(plan.allowed_sources, family, config)))


def _endpoint_chains(
    plan: ServicePlan, wide: WidePort, traffic_class: TrafficClass, family: NftFamily
) -> Iterator[Chain]:
    """Yield the chain for one class of traffic, and those for known clients."""
    protocol = nft.Match(nft.Meta("l4proto"), NFT_PROTOCOLS[plan.port.protocol])
    endpoints = wide_array(plan, wide.number, traffic_class)
    ids = wide_ids_array(wide.number, traffic_class)
    frontend = tuple(nft.Constant(int(number)) for number in endpoints.prefix)
    lookup = EndpointLookup(family, frontend, endpoints.container, ids.container, (protocol,))
    name, size = wide_chain_name(wide, traffic_class), max(len(endpoints_of(plan, traffic_class)), 1)
    timeout, rules = plan.port.affinity_seconds, tuple(_endpoint_rules(lookup, size))
    if timeout:
        blocks = [range(start, min(start + MAX_BLOCK_SIZE, size)) for start in range(0, size, MAX_BLOCK_SIZE)]
        known = [Chain(f"{name}-known-{block.start}", known_rules(lookup, block, timeout)) for block in blocks]
        yield from known
        precedence = affinity_rules(lookup, size, timeout, [chain.name for chain in known])
        first = nft.Rule((nft.ClearPriority(), *rules[0].statements))
        rules = (*precedence, first, *rules[1:])
    yield Chain(name, rules)


def _endpoint_rules(lookup: EndpointLookup, size: int) -> Iterator[nft.Rule]:
    """Yield the rule that picks an endpoint, and one for packets in flight, as in a pool chain."""
    for modulus in (size, 1) if size > 1 else (1,):
        yield nft.Rule((*lookup.conditions, lookup.translate(nft.RandomNumber(modulus))))


def _source_rules(allowed: Iterable[str], family: Family, config: Config) -> Iterator[nft.Rule]:
    source = nft.Payload(family.nft, "saddr")
    for cidr in allowed:
        matches = () if cidr.endswith("/0") else (nft.Match(source, nft.Network(cidr)),)
        yield nft.Rule((*matches, nft.Return()))
    yield from count_denied_source((), family, config)
    yield nft.Rule((nft.Drop(),), "load balancer source ranges")
