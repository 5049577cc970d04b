"""Session affinity (ClientIP): the chains and elements of sticky Service ports. Only these have chains of their own.

A sticky Service port, in short sticky port, has a number K, and each of its endpoints an index i. The dynamic set
``affinity``, shared by all sticky ports, has an affinity entry client . K . i for each client that was sent to
endpoint i. A client with an affinity entry is a remembered client:

    sticky-K-cluster        a remembered client continues in sticky-K-cluster-known
                            another client gets an affinity entry with a random index, and continues there, too
                            if the set is full, the client continues in the pool, as without affinity
    sticky-K-cluster-known  client . K . i in affinity?  ─▶ restart the Service's timeout; dnat to endpoint i
                            (with many endpoints in blocks: ``knft.render.remembered``)

So a client has one endpoint for all frontends of the port. With policy Local the client never reaches the remote
endpoint in its affinity entry, because ``sticky-K-local-known`` has no rule for it. knft never deletes elements of the
set. The index of a removed endpoint is not reassigned before all affinity entries with it have expired.

There are two chains for each class of traffic, with few rules: the kernel walks all rules for each new verdict, and
libnftables lists all chains before each command. With a chain for each endpoint, a change took five times as long. See
docs/design/sticky-layout.md.
"""

import hashlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from knft.config import Config
from knft.families import Family
from knft.model.endpoint import Endpoint
from knft.model.plan import Frontend, ServicePlan, TrafficAction
from knft.nft import expressions as nft
from knft.nft.objects import ArrayName, Chain, Container, Contents, Entry, Key, Target, Value
from knft.protocols import NFT_PROTOCOLS
from knft.render import frontends, names
from knft.render.frontends import TrafficClass
from knft.render.names import STICKY_ENDPOINTS, STICKY_PORTS, STICKY_PREFIX
from knft.render.numbering import NUMBERS, Slot, StickyPort
from knft.render.picks import pick_chains
from knft.render.pools import external_rules
from knft.render.remembered import StickyRules, is_block, remembered_chains
from knft.render.wide import WidePort, endpoints_of

AFFINITY_SIZE = 1 << 22
"""The size of the affinity set, in pairs of client and sticky port. New clients have no affinity while it is full."""


def affinity_set(family: Family) -> Container:
    """Return the declaration of the set of affinity entries."""
    number = f"numgen random mod {NUMBERS}"
    key = f"{family.nft} saddr . {number} . {number}"
    comment = "remembered clients with sticky port and endpoint"
    return Container(names.AFFINITY, key, by_expression=True, dynamic_size=AFFINITY_SIZE, comment=comment)


_OLD_AFFINITY_SET = re.compile(r"affinity-(\d{1,5})")


def migrate_affinity(dynamic_elements: Mapping[str, Mapping[Key, Value]]) -> dict[str, dict[Key, Value]]:
    """Return the affinity entries of a table of any layout, as elements of the current affinity set.

    Earlier layouts had one set for each index.
    """
    found: dict[Key, Value] = {}
    for name, elements in dynamic_elements.items():
        one_index = _OLD_AFFINITY_SET.fullmatch(name)
        if one_index is None and name != names.AFFINITY:
            continue
        index = (int(one_index[1]),) if one_index is not None else ()
        found |= {(*key, *index): value for key, value in elements.items() if _is_affinity_key((*key, *index))}
    return {names.AFFINITY: found}


def _is_affinity_key(key: Key) -> bool:
    """Return whether a key has the form that knft's rules write; other programs may have changed the set."""
    match key:
        case (str(), int(number), int(index)):
            return max(number, index) < NUMBERS
        case _:
            return False


def sticky_chains(
    plan: ServicePlan,
    sticky: StickyPort,
    fallbacks: Mapping[TrafficClass, Sequence[str]],
    family: Family,
    config: Config,
) -> dict[str, Chain]:
    """Return the chains of a sticky port, by name.

    ``fallbacks`` are the chains, for each traffic class, that serve clients that do not fit into the affinity set.
    """
    return {chain.name: chain for chain in _chains(plan, sticky, fallbacks, family, config)}


def sticky_port_record(sticky: StickyPort, chains: Mapping[str, Chain]) -> Contents:
    """Return the elements that record a sticky port's number and indexes in the kernel.

    After a restart, knft reads them, and uses the digest to check the port's chains. It leaves out blocks, of which
    there may be many: their rules are compared with those in the kernel.
    """
    contents = Contents.empty()
    key = (sticky.number,)
    contents.arrays[ArrayName(STICKY_ENDPOINTS, key)] = sticky.targets()
    described = tuple(chain for name, chain in chains.items() if not is_block(name))
    digest = hashlib.sha256(repr(described).encode()).hexdigest()[:8]
    numbers = f"{len(sticky.slots)} {sticky.longest_timeout} {sticky.free_at()}"
    contents.entries[STICKY_PORTS, key] = Entry(nft.Drop(), f"{sticky.hash_id} {numbers} {digest} {sticky.name}")
    return contents


_RECORD_COMMENT = re.compile(
    r"(?P<hash_id>\S+) (?P<size>\d{1,5}) (?P<timeout>\d{1,6}) (?P<free_at>\d{1,12}) \S+ (?P<name>.*)"
)


def read_sticky_ports(contents: Contents, now: float) -> dict[str, StickyPort]:
    """Return the sticky ports of a table, by hash ID; ``now`` is in seconds since boot."""
    found = {}
    for (container, key), entry in contents.entries.items():
        written = _RECORD_COMMENT.fullmatch(entry.comment) if container == STICKY_PORTS else None
        if written is None:
            continue
        size, timeout = int(written["size"]), int(written["timeout"])
        targets = contents.arrays.get(ArrayName(STICKY_ENDPOINTS, key), ())
        padded = (*targets, *[None] * (size - len(targets)))
        # The clock counts from the boot, and the table does not survive a reboot. So knft has not written a time later
        # than now + timeout; such a time comes from another program.
        free_at = min(int(written["free_at"]), math.ceil(now + timeout))
        slots = tuple(Slot(target, None if target is not None else free_at) for target in padded)
        port = StickyPort(written["hash_id"], written["name"], int(key[0]), slots, timeout)
        found[port.hash_id] = port
    return found


def sticky_verdict(
    plan: ServicePlan, frontend: Frontend, sticky: StickyPort, wide: WidePort | None = None
) -> nft.Goto | nft.Jump | None:
    """Return the verdict for a frontend's packets; None if the traffic is rejected.

    Verdicts of cluster IPs jump. A packet that enters the chain while it is empty returns, and chain ``in-flight``
    translates it. So a chain that only verdicts of cluster IPs refer to may be created in the same transaction as the
    verdict. The endpoints of a wide Service port are not in the maps that ``in-flight`` uses, so its verdicts go.
    """
    to_chain = nft.Jump if wide is None or not wide.endpoints else nft.Goto
    match frontends.is_internal(frontend), frontends.traffic_action(plan, frontend):
        case True, TrafficAction.CLUSTER:
            return to_chain(_chain_name(sticky, "cluster"))
        case True, TrafficAction.LOCAL:
            return to_chain(_chain_name(sticky, "local"))
        case False, (TrafficAction.CLUSTER | TrafficAction.LOCAL | TrafficAction.DROP):
            return nft.Goto(_chain_name(sticky, "external"))
        case _:
            return None


def _chain_name(sticky: StickyPort, traffic_class: str) -> str:
    return f"{STICKY_PREFIX}{sticky.number}-{traffic_class}"


def _chains(
    plan: ServicePlan,
    sticky: StickyPort,
    fallbacks: Mapping[TrafficClass, Sequence[str]],
    family: Family,
    config: Config,
) -> Iterator[Chain]:
    """Yield the chains of a sticky port: two for each traffic class (cluster, local), and one for external traffic."""
    rules = _rules(plan, sticky, family)
    for traffic_class, chains in fallbacks.items():
        targets = _targets_by_index(sticky, endpoints_of(plan, traffic_class))
        known = _chain_name(sticky, f"{traffic_class}-known")
        yield from remembered_chains(known, rules, targets)
        yield from pick_chains(_chain_name(sticky, traffic_class), known, rules, sorted(targets), chains)
    if plan.external is not TrafficAction.REJECT and not all(map(frontends.is_internal, plan.frontends)):
        external = external_rules(plan.external, partial(_chain_name, sticky), family, config)
        yield Chain(_chain_name(sticky, "external"), external)


def _targets_by_index(sticky: StickyPort, endpoints: tuple[Endpoint, ...]) -> dict[int, Target]:
    """Return the endpoints of one traffic class by index, sorted."""
    indexes = sticky.indexes()
    targets = ((endpoint.address, endpoint.port) for endpoint in endpoints)
    return dict(sorted((indexes[target], target) for target in targets))


def _rules(plan: ServicePlan, sticky: StickyPort, family: Family) -> StickyRules:
    return StickyRules(family.nft, NFT_PROTOCOLS[plan.port.protocol], sticky.number, plan.port.affinity_seconds)
