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

import base64
import hashlib
from collections.abc import Collection, Iterable, Iterator

from msgspec import Struct

from knft.config import Config
from knft.model.endpoint import Endpoint
from knft.model.names import Family, ServicePortName
from knft.model.plan import Frontend, ServicePlan, Traffic
from knft.nft import expressions as nft
from knft.nft.objects import ArrayName, Chain, Container, Contents, Entry, Target
from knft.render import frontends, names
from knft.render.names import AFFINITY_PREFIX, NFT_FAMILIES, STICKY_ENDPOINTS, STICKY_PORTS, STICKY_PREFIX
from knft.render.pools import from_pods

NUMBERS = 1 << 16
AFFINITY_SIZE = 1 << 20
"""How many clients one affinity set remembers; where it is full, affinity is lost and nothing else."""


class Slot(Struct, frozen=True):
    """One index of a sticky port: its endpoint, or None and the time from which another may have it, in seconds."""

    target: Target | None
    free_at: float = 0.0


class StickyPort(Struct, frozen=True):
    """The number of a sticky port, its endpoints by index, and the longest timeout it has had, in seconds."""

    number: int
    slots: tuple[Slot, ...] = ()
    longest_timeout: int = 0

    def indexes(self) -> dict[Target, int]:
        """Return the index of each endpoint."""
        return {slot.target: index for index, slot in enumerate(self.slots) if slot.target is not None}


def identity(name: ServicePortName) -> str:
    """Return what a sticky port is known by in the kernel: the beginning of a hash, in base32."""
    full = f"{name.namespace}/{name.name}/{name.protocol.lower()}/{name.port}"
    return base64.b32encode(hashlib.sha256(full.encode()).digest()).decode()[:16]


def free_number(port_identity: str, taken: Collection[int]) -> int:
    """Return a number for a new sticky port: the same for the same name, unless another has it."""
    number = int.from_bytes(hashlib.sha256(port_identity.encode()).digest()[:2])
    while number in taken:
        number = (number + 1) % NUMBERS
    return number


def assign(previous: StickyPort, targets: Iterable[Target], timeout: int, now: float) -> StickyPort:
    """Give every target an index: its own, or a free one that nobody is remembered at, or a new one.

    ``timeout`` is the Service's, in seconds; ``now`` is in seconds, on the clock of ``Slot.free_at``.
    """
    wanted = dict.fromkeys(targets)
    longest = max(timeout, previous.longest_timeout)
    slots: list[Slot] = []
    for slot in previous.slots:
        if slot.target is not None and slot.target not in wanted:
            slots.append(Slot(None, now + longest))
        else:
            slots.append(slot)
            wanted.pop(slot.target, None) if slot.target is not None else None
    newcomers = iter(wanted)
    for index, slot in enumerate(slots):
        if slot.target is None and slot.free_at <= now and (target := next(newcomers, None)) is not None:
            slots[index] = Slot(target)
    slots += [Slot(target) for target in newcomers]
    return StickyPort(previous.number, tuple(slots), longest)


def affinity_set(index: int, family: Family) -> Container:
    """Return the declaration of one affinity set."""
    key = f"{NFT_FAMILIES[family]} saddr . numgen random mod {NUMBERS}"
    return Container(f"{AFFINITY_PREFIX}{index}", key, by_expression=True, dynamic_size=AFFINITY_SIZE)


def sticky_contents(plan: ServicePlan, sticky: StickyPort, family: Family, config: Config) -> Contents:
    """Return the chains of a sticky port, and the note in the kernel by which a restart finds its numbers again."""
    contents = Contents.empty()
    chains = tuple(_chains(plan, sticky, family, config))
    contents.chains.update((chain.name, chain) for chain in chains)
    contents.arrays[ArrayName(STICKY_ENDPOINTS, (sticky.number,))] = tuple(slot.target for slot in sticky.slots)
    digest = hashlib.sha256(repr(chains).encode()).hexdigest()[:8]
    note = f"{identity(plan.name)} {len(sticky.slots)} {sticky.longest_timeout} {digest} {plan.name}"
    contents.entries[STICKY_PORTS, (sticky.number,)] = Entry(nft.Drop(), note)
    return contents


def read_sticky_ports(contents: Contents, now: float) -> dict[str, StickyPort]:
    """Return the sticky ports of a table, by identity; indexes without an endpoint count as just left."""
    found = {}
    for (container, key), entry in contents.entries.items():
        fields = entry.comment.split()
        if container != STICKY_PORTS or len(fields) < 4 or not (fields[1] + fields[2]).isdigit():  # noqa: PLR2004
            continue
        size, timeout = int(fields[1]), int(fields[2])
        targets = contents.arrays.get(ArrayName(STICKY_ENDPOINTS, key), ())
        padded = (*targets, *[None] * (size - len(targets)))
        slots = tuple(Slot(target, 0.0 if target is not None else now + timeout) for target in padded)
        found[fields[0]] = StickyPort(int(key[0]), slots, timeout)
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
