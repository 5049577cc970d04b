"""Session affinity (ClientIP): the one exception to "no object per Service", for sticky Service ports alone.

A sticky port has a number K, and each of its endpoints an index i in it. Who is stuck to endpoint i stands in the
dynamic set ``affinity-i``, shared by all sticky ports, under the client's address and K:

    sticky-K-cluster     client . K in affinity-i?  ─▶ sticky-K-endpoint-i     (each endpoint of this class of traffic)
                         else one at random         ─▶ sticky-K-endpoint-i
    sticky-K-endpoint-i  remember client . K in affinity-i, for the Service's timeout; then dnat

So a client has one endpoint across all frontends of the port, and policy Local never follows a remembered remote
endpoint, because ``sticky-K-local`` does not list it. Nothing is ever deleted from a dynamic set; an index that an
endpoint left is not given to another before all who are remembered there have been forgotten.
"""

import hashlib
import math
import re
from collections.abc import Collection, Iterator, Mapping

from knft.config import Config
from knft.model.endpoint import Endpoint
from knft.model.names import Family
from knft.model.plan import Frontend, ServicePlan, Traffic
from knft.nft import expressions as nft
from knft.nft.objects import ArrayName, Chain, Container, Contents, Entry, Target
from knft.render import frontends, names
from knft.render.names import AFFINITY_PREFIX, NFT_FAMILIES, STICKY_ENDPOINTS, STICKY_PORTS, STICKY_PREFIX
from knft.render.numbering import NUMBERS, Slot, StickyPort
from knft.render.pools import from_pods

AFFINITY_SIZE = 1 << 20
"""How many clients one affinity set remembers; where it is full, affinity is lost and nothing else."""


def affinity_set(index: int, family: Family) -> Container:
    """Return the declaration of one affinity set."""
    key = f"{NFT_FAMILIES[family]} saddr . numgen random mod {NUMBERS}"
    return Container(f"{AFFINITY_PREFIX}{index}", key, by_expression=True, dynamic_size=AFFINITY_SIZE)


def unneeded_sets(existing: Collection[str], count: int) -> tuple[str, ...]:
    """Return the affinity sets among ``existing`` that are not the first ``count``."""
    return tuple(f"{AFFINITY_PREFIX}{index}" for index in _affinity_indexes(existing) if index >= count)


def affinity_sets_in(existing: Collection[str]) -> int:
    """Return how many affinity sets there should be, for all that are among ``existing`` to be."""
    return max(_affinity_indexes(existing), default=-1) + 1


def _affinity_indexes(existing: Collection[str]) -> list[int]:
    indexes = (name.removeprefix(AFFINITY_PREFIX) for name in existing if name.startswith(AFFINITY_PREFIX))
    return sorted(int(index) for index in indexes if index.isdecimal() and int(index) < NUMBERS)


def sticky_chains(plan: ServicePlan, sticky: StickyPort, family: Family, config: Config) -> dict[str, Chain]:
    """Return the chains of a sticky port, by name."""
    return {chain.name: chain for chain in _chains(plan, sticky, family, config)}


def note(sticky: StickyPort, chains: Mapping[str, Chain]) -> Contents:
    """Return the note in the kernel by which a restart finds a sticky port's numbers, and trusts its chains, again."""
    contents = Contents.empty()
    key = (sticky.number,)
    contents.arrays[ArrayName(STICKY_ENDPOINTS, key)] = sticky.targets()
    digest = hashlib.sha256(repr(tuple(chains.values())).encode()).hexdigest()[:8]
    numbers = f"{len(sticky.slots)} {sticky.longest_timeout} {sticky.free_at()}"
    contents.entries[STICKY_PORTS, key] = Entry(nft.Drop(), f"{sticky.identity} {numbers} {digest} {sticky.name}")
    return contents


_NOTE = re.compile(r"(?P<identity>\S+) (?P<size>\d{1,5}) (?P<timeout>\d{1,6}) (?P<free_at>\d{1,12}) \S+ (?P<name>.*)")


def read_sticky_ports(contents: Contents, now: float) -> dict[str, StickyPort]:
    """Return the sticky ports of a table, by identity; ``now`` is in seconds."""
    found = {}
    for (container, key), entry in contents.entries.items():
        written = _NOTE.fullmatch(entry.comment) if container == STICKY_PORTS else None
        if written is None:
            continue
        size, timeout = int(written["size"]), int(written["timeout"])
        targets = contents.arrays.get(ArrayName(STICKY_ENDPOINTS, key), ())
        padded = (*targets, *[None] * (size - len(targets)))
        # A time beyond the timeout is none that knft wrote since the machine started.
        free_at = min(int(written["free_at"]), math.ceil(now + timeout))
        slots = tuple(Slot(target, None if target is not None else free_at) for target in padded)
        port = StickyPort(written["identity"], written["name"], int(key[0]), slots, timeout)
        found[port.identity] = port
    return found


def sticky_entry_chain(plan: ServicePlan, frontend: Frontend, sticky: StickyPort) -> str:
    """Return the chain that a frontend's packets enter, "" where nobody answers."""
    match frontends.is_internal(frontend), frontends.traffic(plan, frontend):
        case True, Traffic.CLUSTER:
            return _name(sticky, "cluster")
        case True, Traffic.LOCAL:
            return _name(sticky, "local")
        case False, (Traffic.CLUSTER | Traffic.LOCAL | Traffic.DROP):
            return _name(sticky, "external")
        case _:
            return ""


def _name(sticky: StickyPort, what: str) -> str:
    return f"{STICKY_PREFIX}{sticky.number}-{what}"


def _chains(plan: ServicePlan, sticky: StickyPort, family: Family, config: Config) -> Iterator[Chain]:
    """Yield the chains of a sticky port: one for each endpoint, one for each class of traffic."""
    for target, index in sticky.indexes().items():
        yield _endpoint_chain(plan, sticky, index, target, family)
    for what, endpoints in (("cluster", plan.endpoints.cluster), ("local", plan.endpoints.local)):
        if endpoints:
            yield Chain(_name(sticky, what), tuple(_class_rules(sticky, endpoints, family)))
    if plan.port.externally_accessible and plan.external is not Traffic.REJECT:
        yield Chain(_name(sticky, "external"), tuple(_external_rules(plan, sticky, family, config)))


def _client(sticky: StickyPort, family: Family) -> nft.Concat:
    return nft.Concat((nft.Payload(NFT_FAMILIES[family], "saddr"), nft.Constant(sticky.number)))


def _endpoint_chain(plan: ServicePlan, sticky: StickyPort, index: int, target: Target, family: Family) -> Chain:
    # Two rules: where the set is full, the update ends its rule, and the connection must go on.
    remember = nft.Update(f"{AFFINITY_PREFIX}{index}", _client(sticky, family), plan.port.affinity_seconds)
    protocol = nft.Match(nft.Meta("l4proto"), names.NFT_PROTOCOLS[plan.port.protocol])
    rules = (nft.Rule((remember,)), nft.Rule((protocol, nft.Dnat(NFT_FAMILIES[family], *target))))
    return Chain(_name(sticky, f"endpoint-{index}"), rules)


def _class_rules(sticky: StickyPort, endpoints: tuple[Endpoint, ...], family: Family) -> Iterator[nft.Rule]:
    indexes = sticky.indexes()
    listed = sorted(indexes[endpoint.address, endpoint.port] for endpoint in endpoints)
    for index in listed:
        remembered = nft.Match(_client(sticky, family), nft.Reference(f"{AFFINITY_PREFIX}{index}"))
        yield nft.Rule((remembered, nft.Goto(_name(sticky, f"endpoint-{index}"))))
    yield nft.Rule((nft.RandomGoto(tuple(_name(sticky, f"endpoint-{index}") for index in listed)),))
    # A packet on its way during a commit still has these rules, and finds the map above empty.
    yield nft.Rule((nft.Goto(_name(sticky, f"endpoint-{listed[0]}")),))


def _external_rules(plan: ServicePlan, sticky: StickyPort, family: Family, config: Config) -> Iterator[nft.Rule]:
    mark = nft.SetMark(config.masquerade_mark)
    to_cluster = nft.Goto(_name(sticky, "cluster"))
    if plan.external is Traffic.CLUSTER:
        yield nft.Rule((mark, to_cluster), "masquerade")
        return
    yield nft.Rule((from_pods(family, config), to_cluster), "short-circuit pod traffic")
    yield nft.Rule((nft.Match(nft.FibType("saddr"), "local"), mark, to_cluster), "short-circuit local traffic")
    if plan.external is Traffic.LOCAL:
        yield nft.Rule((nft.Goto(_name(sticky, "local")),))
