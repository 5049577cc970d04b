"""Equivalence of tables: after any history a table equals what a fresh process would render.

Not compared: the order of endpoints, unused pool chains, numbers, indexes and blocks of sticky ports, records of
retired sticky ports, and affinity entries. A table is described by *facts* that leave these out; two tables are
compared fact by fact.
See docs/verification.md#equivalence.
"""

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any

from knft.config import Config
from knft.families import Family
from knft.model.names import ServicePortName
from knft.model.objects import KubeObject, ObjectChange
from knft.nft.codec.listing import TableListing
from knft.nft.expressions import Goto, Jump
from knft.nft.objects import ArrayName, Contents, Entry, Target
from knft.nft.transaction import Transaction
from knft.render.names import STICKY_ENDPOINTS, STICKY_PORTS, WIDE_MAP_PREFIX
from knft.render.pools import parse_shared_chain, shared_chain, with_target_pools
from knft.render.wide import wide_number
from knft.sync.assemble import rendering_daemon
from knft.sync.state import ServiceState

Facts = dict[str, Any]
Json = dict[str, Any]

_STICKY_CHAIN = re.compile(r"sticky-(\d+)-(external|(?:cluster|local)(?:-known|-picks)?)(-\d+)?")
_ROLES = ("cluster", "local", "external", "cluster-known", "local-known")
_CLASSES = _ROLES[:2]


def rendered(
    objects: Iterable[KubeObject],
    addresses: frozenset[str] | None,
    config: Config,
    without: Mapping[Family, Collection[ServicePortName]] = {},
) -> dict[Family, TableListing]:
    """Return what a fresh process would render for these objects, in the form of a table listing.

    Service ports in ``without`` keep their frontends but have no plan.
    """
    daemon, recorders = rendering_daemon(config)
    for proxier in daemon._proxiers:
        _remove_plans(proxier.state, without.get(proxier.family, ()))
    if addresses is not None:
        daemon.update_local_addresses(addresses)
    daemon.handle(ObjectChange(None, item) for item in objects)
    assert daemon.sync()
    found = {}
    for family, recorder in recorders.items():
        declared, sent = recorder.first_sync()
        containers = frozenset(container.name for container in declared.containers)
        found[family] = TableListing(
            {chain.name: len(chain.rules) for chain in (*sent.new_chains, *sent.chains)},
            containers,
            _contents(sent),
        )
    return found


def _remove_plans(state: ServiceState, names: Collection[ServicePortName]) -> None:
    plan = state.plan
    state.plan = lambda name: None if name in names else plan(name)  # type: ignore[method-assign]


def _contents(sent: Transaction) -> Contents:
    contents = Contents.empty()
    arrays: dict[ArrayName, list[Target]] = {}
    for container, elements in sent.added.items():
        for key, value in elements.items():
            if isinstance(value, Entry):
                contents.entries[container, key] = value
            elif value is None:
                contents.members.add((container, key))
            elif isinstance(value, tuple):
                arrays.setdefault(ArrayName(container, key[:-1]), []).append(value)
    contents.arrays.update((name, tuple(targets)) for name, targets in arrays.items())
    return contents


class _StickyNumbers:
    """The numbers of a table's sticky ports, and the indexes of their endpoints."""

    def __init__(self, listing: TableListing, sticky_now: frozenset[str]) -> None:
        records = [
            (entry.comment.split()[0], int(key[0]))
            for (container, key), entry in listing.contents.entries.items()
            if container == STICKY_PORTS
        ]
        self.records = Counter(identity for identity, _ in records if identity in sticky_now)
        self.hash_ids = {number: identity for identity, number in records if identity in sticky_now}
        self.targets = {
            number: dict(enumerate(listing.contents.arrays.get(ArrayName(STICKY_ENDPOINTS, (number,)), ())))
            for number in self.hash_ids
        }

    def with_hash_id(self, name: str) -> str:
        """Return a chain's name with the port's hash id instead of its number."""
        found = _STICKY_CHAIN.fullmatch(name)
        if found is None or int(found[1]) not in self.hash_ids:
            return name
        return f"sticky {self.hash_ids[int(found[1])]} {found[2]}"


def sticky_ports(listing: TableListing) -> frozenset[str]:
    """Return the hash ids of a table's sticky ports."""
    entries = listing.contents.entries
    return frozenset(entry.comment.split()[0] for (container, _), entry in entries.items() if container == STICKY_PORTS)


def facts(listing: TableListing, sticky_now: frozenset[str], family: Family, config: Config) -> Facts:
    """Return the facts of a table; ``sticky_now`` are the hash ids of the ports that are sticky now."""
    numbers = _StickyNumbers(listing, sticky_now)
    return {
        **dict(_elements(listing.contents, numbers)),
        **dict(_chains(listing, numbers, family, config)),
        **dict(_sticky(listing, numbers)),
        **{f"container {name}": True for name in listing.containers},
    }


def _elements(contents: Contents, numbers: _StickyNumbers) -> Iterator[tuple[str, Any]]:
    for (container, key), entry in contents.entries.items():
        if container != STICKY_PORTS:
            verdict = entry.verdict
            target = numbers.with_hash_id(verdict.chain) if isinstance(verdict, Goto | Jump) else type(verdict).__name__
            yield f"{container} {key}", (target, entry.comment)
    for container, key in contents.members:
        yield f"{container} {key}", True
    for name, array in contents.arrays.items():
        if "sticky" not in name.container:
            # The length reveals gaps.
            yield f"{name.container} {name.prefix}", (len(array), sorted(target for target in array if target))


def _chains(
    listing: TableListing, numbers: _StickyNumbers, family: Family, config: Config
) -> Iterator[tuple[str, Any]]:
    needed = _needed(listing.contents)
    for name in needed - listing.rule_counts.keys():
        yield f"chain {name}", "missing"
    for name, count in listing.rule_counts.items():
        shared, sticky = parse_shared_chain(name), _STICKY_CHAIN.fullmatch(name)
        if shared is not None:
            # Unused chains may be needed later, so they must be complete, too.
            if name in needed or count != len(shared_chain(shared, family, config).rules):
                yield f"chain {name}", count
        elif wide_number(name) is not None:
            if count:  # An empty one waits to be deleted.
                yield f"chain {name}", count
        elif sticky is None or (count and int(sticky[1]) not in numbers.hash_ids):
            yield f"chain {name}", count


def _needed(contents: Contents) -> set[str]:
    """Return the shared chains that elements need, directly or through sticky ports: a pool for each array."""
    gotos = {entry.verdict.chain for entry in contents.entries.values() if isinstance(entry.verdict, Goto)}
    specs = (spec for spec in map(parse_shared_chain, gotos) if spec is not None)
    pools = {
        f"{name.container.replace('endpoints', 'pool')}-{len(array)}"
        for name, array in contents.arrays.items()
        if name.container != STICKY_ENDPOINTS and not name.container.startswith(WIDE_MAP_PREFIX)
    }
    return pools | {part.name for spec in specs for part in with_target_pools(spec)}


def _sticky(listing: TableListing, numbers: _StickyNumbers) -> Iterator[tuple[str, Any]]:
    for number, hash_id in numbers.hash_ids.items():
        yield f"sticky {hash_id} records", numbers.records[hash_id]
        for role in _ROLES:
            count = _rule_count(f"sticky-{number}-{role}", listing)
            # The number of rules that pick an index depends on the gaps between indexes.
            yield f"sticky {hash_id} {role}", bool(count) if role in _CLASSES else count
        yield (
            f"sticky {hash_id} endpoints",
            sorted(target for target in numbers.targets[number].values() if target is not None),
        )


def _rule_count(chain: str, listing: TableListing) -> int:
    """Return the number of rules of a sticky port's chain: of its blocks, if it has any."""
    blocks = sum(count for name, count in listing.rule_counts.items() if re.fullmatch(rf"{chain}-\d+", name))
    return blocks or listing.rule_counts.get(chain, 0)


def without_unused_blocks(found: Facts, expected: Facts) -> Facts:
    """Return the facts found, without the rules of blocks that a sticky port does not use any more.

    Such blocks are orphans: they stay while the kernel refuses to remove orphans.
    """
    known = {fact for fact in found if fact.startswith("sticky ") and fact.endswith("-known")}
    return found | {fact: min(found[fact], expected[fact]) for fact in known & expected.keys()}


def rules(text: str, listing: TableListing, sticky_now: frozenset[str]) -> Facts:
    """Return the facts about rules: those of reachable chains."""
    numbers, needed = _StickyNumbers(listing, sticky_now), _needed(listing.contents)
    found: dict[str, list[Json]] = {}
    for item in json.loads(text)["nftables"]:
        if "rule" in item and _is_comparable(item["rule"]["chain"], numbers, needed):
            found.setdefault(item["rule"]["chain"], []).append(item["rule"])
    return {
        f"rules {numbers.with_hash_id(chain)}": _rule_texts(chain, found, numbers)
        for chain in found
        if not _is_part(chain)
    }


def _is_part(chain: str) -> bool:
    """Return whether a chain's rules are compared as those of another: it is a block, or leads to blocks."""
    sticky = _STICKY_CHAIN.fullmatch(chain)
    return sticky is not None and (sticky[3] is not None or sticky[2].endswith("-picks"))


def _is_comparable(chain: str, numbers: _StickyNumbers, needed: set[str]) -> bool:
    """Return whether a chain must be the same in both tables."""
    found = _STICKY_CHAIN.fullmatch(chain)
    if found is None:
        return parse_shared_chain(chain) is None or chain in needed
    return int(found[1]) in numbers.hash_ids


def _rule_texts(chain: str, found: Mapping[str, list[Json]], numbers: _StickyNumbers) -> list[str]:
    """Return the rules of a chain as text, with endpoints instead of indexes."""
    rules, sticky = found[chain], _STICKY_CHAIN.fullmatch(chain)
    if sticky is None:
        return [_rule(rule) for rule in rules]
    number = int(sticky[1])
    targets = numbers.targets[number]
    if sticky[2] not in _CLASSES:
        parts = [found[target] for target in map(_target, rules) if _is_part(target)] or [rules]
        texts = [
            _rule({**rule, "expr": _with_placeholders(rule["expr"], number, targets)})
            for part in parts
            for rule in part
        ]
        return sorted(_STICKY_CHAIN.sub(lambda name: numbers.with_hash_id(name[0]), text) for text in texts)
    blocks = [index for index, rule in enumerate(rules) if _target(rule).endswith("-picks")]
    updates = [index for index, rule in enumerate(rules) if any("set" in statement for statement in rule["expr"])]
    if blocks:
        (first,) = blocks
        last, picks = first + 2, list(_picks_in_blocks(found[_target(rules[first])], found))
    elif updates:
        first, last = updates[0], updates[-1] + 1
        picks = list(_with_probability(rules[first:last]))
    else:
        return [_rule(rule) for rule in rules]
    around = [_rule(rule) for rule in (*rules[:first], *rules[last:])]
    texts = [_STICKY_CHAIN.sub(lambda name: numbers.with_hash_id(name[0]), text) for text in around]
    return [*texts, f"picks {_probabilities(picks, number, targets)}"]


def _target(rule: Json) -> str:
    """Return the chain to which a rule's last statement leads; "" if there is none."""
    (leads_to,) = rule["expr"][-1].values()
    return str(leads_to["target"]) if isinstance(leads_to, dict) and "target" in leads_to else ""


def _rule(rule: Json) -> str:
    return json.dumps([rule["expr"], rule.get("comment", "")])


def _with_placeholders(expression: Any, number: int, targets: Mapping[int, Target | None]) -> Any:
    """Return an expression with placeholders for number and index in keys of client, number and index."""
    match expression:
        case {"concat": [client, {"numgen": {"mod": 1, "offset": int(port)}}, {"numgen": {"mod": 1, "offset": index}}]}:
            return {"concat": [client, "own number" if port == number else port, f"{targets.get(index)}"]}
        case dict():
            return {name: _with_placeholders(part, number, targets) for name, part in expression.items()}
        case list():
            return [_with_placeholders(part, number, targets) for part in expression]
        case _:
            return expression


def _picks_in_blocks(ways: list[Json], found: Mapping[str, list[Json]]) -> Iterator[tuple[Fraction, Json]]:
    for chosen, way in _with_probability(ways):
        for taken, rule in _with_probability(found[_target(way)]):
            yield chosen * taken, rule


def _with_probability(rules: list[Json]) -> Iterator[tuple[Fraction, Json]]:
    """Yield each rule with the probability that it is the one that applies."""
    left = Fraction(1)
    for rule in rules:
        taken = left
        for statement in rule["expr"]:
            match statement:
                case {"match": {"op": "<", "left": {"numgen": {"mod": total, "offset": 0}}, "right": cases}}:
                    taken *= Fraction(cases, total)
        yield taken, rule
        left -= taken


def _probabilities(
    picks: Iterable[tuple[Fraction, Json]], number: int, targets: Mapping[int, Target | None]
) -> list[str]:
    """Return for each endpoint the probability with which it is chosen and how it is remembered."""
    chances: list[str] = []
    for taken, rule in picks:
        *_, update, verdict = rule["expr"]
        element = update["set"]["elem"]["elem"]
        client, port, picked = element["val"]["concat"]
        drawn = picked["numgen"]
        how = (client, port["numgen"]["offset"] == number, element["timeout"], update["set"]["set"], len(verdict))
        chances += [
            f"{taken / drawn['mod']} for {targets.get(index)} by {how}"
            for index in range(drawn["offset"], drawn["offset"] + drawn["mod"])
        ]
    return sorted(chances)


def stale_chains(listing: TableListing, sticky_now: frozenset[str]) -> list[str]:
    """Return the chains of retired sticky ports and empty ones of wide Service ports.

    knft deletes them a second after it has emptied them.
    """
    empty = [name for name, count in listing.rule_counts.items() if wide_number(name) is not None and not count]
    numbers = _StickyNumbers(listing, sticky_now).hash_ids
    sticky = (found for found in map(_STICKY_CHAIN.fullmatch, listing.rule_counts) if found is not None)
    return [*empty, *(found[0] for found in sticky if int(found[1]) not in numbers)]


def difference_except_quarantined(
    expected: Facts, expected_without_quarantined: Facts, found: Facts, names_before: Collection[str]
) -> list[str]:
    """Return a line for each fact that differs from ``expected`` and that no quarantined Service port explains.

    Facts that differ between ``expected`` and ``expected_without_quarantined`` belong to quarantined Service ports, and
    are not compared. These Service ports keep their elements, so additional facts are accepted if their names are in
    ``names_before``, the facts before the sync.
    """
    quarantined_names = {
        name
        for name in {*expected, *expected_without_quarantined}
        if expected.get(name) != expected_without_quarantined.get(name)
    }
    kept = {name for name in found if not expected.get(name) and (name in names_before or "sticky" in name)}
    ignored = quarantined_names | kept
    return difference(
        {name: fact for name, fact in expected.items() if name not in ignored},
        {name: fact for name, fact in found.items() if name not in ignored},
    )


def difference(expected: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """Return a line for each fact that differs, or that only one side has."""
    return [
        f"{name}: expected {expected.get(name)}, found {found.get(name)}"
        for name in sorted({*expected, *found})
        if expected.get(name) != found.get(name)
    ]
