"""Session affinity (ClientIP): the one exception to "no object per Service", for sticky Service ports alone.

A sticky port has a number K, and each of its endpoints an index i in it. Who is stuck to which endpoint stands in the
dynamic set ``affinity``, shared by all sticky ports, as client . K . i:

    sticky-K-cluster        who is known goes to sticky-K-cluster-known
                            others are remembered with one index at random, and go there too
                            who cannot be remembered (the set is full) goes to the pool, as without affinity
    sticky-K-cluster-known  client . K . i in affinity?  ─▶ renew that, for the Service's timeout; dnat to endpoint i

So a client has one endpoint across all frontends of the port, and policy Local never follows a remembered remote
endpoint, because ``sticky-K-local-known`` does not list it. Nothing is ever deleted from a dynamic set; an index that
an endpoint left is not given to another before all who are remembered there have been forgotten.

Two chains for each class of traffic, with as few rules as can be, because the kernel walks all rules at each new
verdict, and libnftables lists all chains before anything: with a chain for each endpoint, a change took five times as
long.
"""

import hashlib
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from knft.config import Config
from knft.model.endpoint import Endpoint
from knft.model.names import Family
from knft.model.plan import Frontend, ServicePlan, Traffic
from knft.nft import expressions as nft
from knft.nft.objects import ArrayName, Chain, Container, Contents, Entry, Key, Target, Value
from knft.render import frontends, names
from knft.render.names import NFT_FAMILIES, STICKY_ENDPOINTS, STICKY_PORTS, STICKY_PREFIX
from knft.render.numbering import NUMBERS, Slot, StickyPort
from knft.render.pools import Pool, from_pods

AFFINITY_SIZE = 1 << 22
"""How many clients are remembered, each once for every sticky port; where that is full, affinity is lost and nothing
else."""


def affinity_set(family: Family) -> Container:
    """Return the declaration of the set of all who are remembered."""
    number = f"numgen random mod {NUMBERS}"
    key = f"{NFT_FAMILIES[family]} saddr . {number} . {number}"
    comment = "clients, and the sticky port and endpoint of each"
    return Container(names.AFFINITY, key, by_expression=True, dynamic_size=AFFINITY_SIZE, comment=comment)


_SET_OF_ONE_INDEX = re.compile(r"affinity-(\d{1,5})")


def carried_over(memories: Mapping[str, Mapping[Key, Value]]) -> dict[str, dict[Key, Value]]:
    """Return who is remembered in a table of any layout, as it is to be remembered now.

    In layouts before, each index had a set of its own.
    """
    found: dict[Key, Value] = {}
    for name, elements in memories.items():
        one_index = _SET_OF_ONE_INDEX.fullmatch(name)
        if one_index is None and name != names.AFFINITY:
            continue
        index = (int(one_index[1]),) if one_index is not None else ()
        found |= {(*key, *index): value for key, value in elements.items() if _is_memory((*key, *index))}
    return {names.AFFINITY: found}


def _is_memory(key: Key) -> bool:
    """Tell whether a key is one that knft's rules write: somebody may have put there a set of another kind."""
    match key:
        case (str(), int(number), int(index)):
            return max(number, index) < NUMBERS
        case _:
            return False


def sticky_chains(
    plan: ServicePlan, sticky: StickyPort, pools: Collection[Pool], family: Family, config: Config
) -> dict[str, Chain]:
    """Return the chains of a sticky port, by name; ``pools`` are those that its frontends would have without it."""
    return {chain.name: chain for chain in _chains(plan, sticky, pools, family, config)}


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


def sticky_verdict(plan: ServicePlan, frontend: Frontend, sticky: StickyPort) -> nft.Goto | nft.Jump | None:
    """Return where a frontend's packets go, None where nobody answers.

    Those to cluster IPs come back where the chain was empty when they came, and chain ``in-flight`` has them then: so
    a chain that no others are led to may be made together with the verdict.
    """
    match frontends.is_internal(frontend), frontends.traffic(plan, frontend):
        case True, Traffic.CLUSTER:
            return nft.Jump(_name(sticky, "cluster"))
        case True, Traffic.LOCAL:
            return nft.Jump(_name(sticky, "local"))
        case False, (Traffic.CLUSTER | Traffic.LOCAL | Traffic.DROP):
            return nft.Goto(_name(sticky, "external"))
        case _:
            return None


def _name(sticky: StickyPort, what: str) -> str:
    return f"{STICKY_PREFIX}{sticky.number}-{what}"


def _chains(
    plan: ServicePlan, sticky: StickyPort, pools: Collection[Pool], family: Family, config: Config
) -> Iterator[Chain]:
    """Yield the chains of a sticky port: two for each class of traffic that it has, one for what comes from outside."""
    for what, endpoints in (("cluster", plan.endpoints.cluster), ("local", plan.endpoints.local)):
        behind = sorted(pool.name for pool in pools if pool.kind.local == (what == "local"))
        if behind:
            listed = _listed(sticky, endpoints)
            known = Chain(_name(sticky, f"{what}-known"), tuple(_known_rules(plan, sticky, listed, family)))
            yield known
            to_known = nft.Jump(known.name)
            yield Chain(
                _name(sticky, what),
                (
                    nft.Rule((to_known,)),
                    *(nft.Rule((*pick, to_known)) for pick in _picks(plan, sticky, sorted(listed), family)),
                    *(nft.Rule((nft.Jump(name),)) for name in behind),
                ),
            )
    if plan.external is not Traffic.REJECT and not all(map(frontends.is_internal, plan.frontends)):
        yield Chain(_name(sticky, "external"), tuple(_external_rules(plan, sticky, family, config)))


def _listed(sticky: StickyPort, endpoints: tuple[Endpoint, ...]) -> dict[int, Target]:
    """Return the endpoints of one class of traffic by index, in order."""
    indexes = sticky.indexes()
    targets = ((endpoint.address, endpoint.port) for endpoint in endpoints)
    return dict(sorted((indexes[target], target) for target in targets))


def _remember(
    plan: ServicePlan, sticky: StickyPort, index: nft.Constant | nft.RandomNumber, family: Family
) -> nft.Update:
    client = nft.Payload(NFT_FAMILIES[family], "saddr")
    key = nft.Concat((client, nft.Constant(sticky.number), index))
    return nft.Update(names.AFFINITY, key, plan.port.affinity_seconds)


def _known_rules(
    plan: ServicePlan, sticky: StickyPort, listed: Mapping[int, Target], family: Family
) -> Iterator[nft.Rule]:
    protocol = nft.Match(nft.Meta("l4proto"), names.NFT_PROTOCOLS[plan.port.protocol])
    for index, target in listed.items():
        renew = _remember(plan, sticky, nft.Constant(index), family)
        remembered = nft.Match(renew.key, nft.Reference(names.AFFINITY))
        yield nft.Rule((remembered, renew, protocol, nft.Dnat(NFT_FAMILIES[family], *target)))


def _picks(
    plan: ServicePlan, sticky: StickyPort, indexes: Sequence[int], family: Family
) -> Iterator[tuple[nft.Statement, ...]]:
    """Yield what remembers a client with one of the indexes, each as likely: a rule for each run without a gap.

    Where the set is full, the update ends its rule, and the connection must go on.
    """
    left = len(indexes)
    for run in _runs(indexes):
        update = _remember(plan, sticky, nft.RandomNumber(len(run), run.start), family)
        yield (nft.Chance(len(run), left), update) if len(run) < left else (update,)
        left -= len(run)


def _runs(indexes: Sequence[int]) -> list[range]:
    """Return sorted indexes as ranges."""
    runs: list[range] = []
    for index in indexes:
        if runs and runs[-1].stop == index:
            runs[-1] = range(runs[-1].start, index + 1)
        else:
            runs.append(range(index, index + 1))
    return runs


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
