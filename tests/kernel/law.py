"""The law that holds it together: a table equals what a fresh process would render (DESIGN.md 2).

Apart from the order within pools, unused pool chains, the numbers and indexes of sticky ports, what is remembered of
those that are sticky no longer, and who is stuck to what. A table is written down as *facts*, from which exactly this
is missing; two tables are held against each other fact by fact.
"""

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any

from knft.config import Config
from knft.model.names import Family, ServicePortName
from knft.model.objects import Change, KubeObject
from knft.nft.codec.listing import Listing
from knft.nft.expressions import Goto, Jump
from knft.nft.objects import ArrayName, Contents, Entry, Target
from knft.nft.transaction import Transaction
from knft.render.names import STICKY_ENDPOINTS, STICKY_PORTS
from knft.render.pools import parse_shared_chain, shared_chain, with_pools
from knft.sync.assemble import recorded_daemon
from knft.sync.state import ServiceState

Facts = dict[str, Any]

_STICKY_CHAIN = re.compile(r"sticky-(\d+)-(external|(?:cluster|local)(?:-known)?)")
_ROLES = ("cluster", "local", "external", "cluster-known", "local-known")
_CLASSES = _ROLES[:2]


def rendered(
    objects: Iterable[KubeObject],
    addresses: frozenset[str] | None,
    config: Config,
    without: Mapping[Family, Collection[ServicePortName]] = {},
) -> dict[Family, Listing]:
    """Return what a fresh process would make of these objects, as if it had been listed.

    Who is ``without`` a plan holds its frontends, and is not served.
    """
    daemon, recorders = recorded_daemon(config)
    for proxier in daemon._proxiers:
        _unplan(proxier.state, without.get(proxier.family, ()))
    if addresses is not None:
        daemon.note_addresses(addresses)
    daemon.handle(Change(None, item) for item in objects)
    assert daemon.sync()
    found = {}
    for family, recorder in recorders.items():
        declared, sent = recorder.first_sync()
        containers = frozenset(container.name for container in declared.containers)
        found[family] = Listing(
            {chain.name: len(chain.rules) for chain in (*sent.made, *sent.chains)}, containers, _contents(sent)
        )
    return found


def _unplan(state: ServiceState, names: Collection[ServicePortName]) -> None:
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


class _Numbers:
    """Which numbers the sticky ports of a table have, and which indexes their endpoints."""

    def __init__(self, listing: Listing, wanted: frozenset[str]) -> None:
        notes = [
            (entry.comment.split()[0], int(key[0]))
            for (container, key), entry in listing.contents.entries.items()
            if container == STICKY_PORTS
        ]
        self.notes = Counter(identity for identity, _ in notes if identity in wanted)
        self.ports = {number: identity for identity, number in notes if identity in wanted}
        self.targets = {
            number: dict(enumerate(listing.contents.arrays.get(ArrayName(STICKY_ENDPOINTS, (number,)), ())))
            for number in self.ports
        }

    def neutral(self, name: str) -> str:
        """Return the name of a chain with the port's identity in the place of its number."""
        found = _STICKY_CHAIN.fullmatch(name)
        if found is None or int(found[1]) not in self.ports:
            return name
        return f"sticky {self.ports[int(found[1])]} {found[2]}"


def sticky_ports(listing: Listing) -> frozenset[str]:
    """Return the identities of a table's sticky ports."""
    entries = listing.contents.entries
    return frozenset(entry.comment.split()[0] for (container, _), entry in entries.items() if container == STICKY_PORTS)


def facts(listing: Listing, wanted: frozenset[str], family: Family, config: Config) -> Facts:
    """Return what a table says; ``wanted`` are the identities of the ports that are sticky now."""
    numbers = _Numbers(listing, wanted)
    return {
        **dict(_elements(listing.contents, numbers)),
        **dict(_chains(listing, numbers, family, config)),
        **dict(_sticky(listing, numbers)),
        **{f"container {name}": True for name in listing.containers},
    }


def _elements(contents: Contents, numbers: _Numbers) -> Iterator[tuple[str, Any]]:
    for (container, key), entry in contents.entries.items():
        if container != STICKY_PORTS:
            verdict = entry.verdict
            said = numbers.neutral(verdict.chain) if isinstance(verdict, Goto | Jump) else type(verdict).__name__
            yield f"{container} {key}", (said, entry.comment)
    for container, key in contents.members:
        yield f"{container} {key}", True
    for name, array in contents.arrays.items():
        if "sticky" not in name.container:
            # The length tells gaps.
            yield f"{name.container} {name.prefix}", (len(array), sorted(target for target in array if target))


def _chains(listing: Listing, numbers: _Numbers, family: Family, config: Config) -> Iterator[tuple[str, Any]]:
    needed = _needed(listing.contents)
    for name in needed - listing.chains.keys():
        yield f"chain {name}", "missing"
    for name, count in listing.chains.items():
        shared, sticky = parse_shared_chain(name), _STICKY_CHAIN.fullmatch(name)
        if shared is not None:
            # Those that nobody needs now may be needed next: they must be whole, too.
            if name in needed or count != len(shared_chain(shared, family, config).rules):
                yield f"chain {name}", count
        elif sticky is None or (count and int(sticky[1]) not in numbers.ports):
            yield f"chain {name}", count


def _needed(contents: Contents) -> set[str]:
    """Return the shared chains that elements lead to, or chains of sticky ports: a pool for every array."""
    gotos = {entry.verdict.chain for entry in contents.entries.values() if isinstance(entry.verdict, Goto)}
    specs = (spec for spec in map(parse_shared_chain, gotos) if spec is not None)
    pools = {
        f"{name.container.replace('endpoints', 'pool')}-{len(array)}"
        for name, array in contents.arrays.items()
        if name.container != STICKY_ENDPOINTS
    }
    return pools | {part.name for spec in specs for part in with_pools(spec)}


def _sticky(listing: Listing, numbers: _Numbers) -> Iterator[tuple[str, Any]]:
    for number, identity in numbers.ports.items():
        yield f"sticky {identity} notes", numbers.notes[identity]
        for what in _ROLES:
            count = listing.chains.get(f"sticky-{number}-{what}", 0)
            # How many rules pick an index depends on the gaps between them.
            yield f"sticky {identity} {what}", bool(count) if what in _CLASSES else count
        yield (
            f"sticky {identity} endpoints",
            sorted(target for target in numbers.targets[number].values() if target is not None),
        )


def rules(text: str, listing: Listing, wanted: frozenset[str]) -> Facts:
    """Return what the rules of a listing say, of the chains whose packets go somewhere."""
    numbers, needed = _Numbers(listing, wanted), _needed(listing.contents)
    found: dict[str, list[dict[str, Any]]] = {}
    for item in json.loads(text)["nftables"]:
        if "rule" in item and _is_of_interest(item["rule"]["chain"], numbers, needed):
            found.setdefault(item["rule"]["chain"], []).append(item["rule"])
    return {f"rules {numbers.neutral(chain)}": _said(chain, rules, numbers) for chain, rules in found.items()}


def _is_of_interest(chain: str, numbers: _Numbers, needed: set[str]) -> bool:
    """Tell whether a chain has to be the same in every table."""
    found = _STICKY_CHAIN.fullmatch(chain)
    if found is None:
        return parse_shared_chain(chain) is None or chain in needed
    return int(found[1]) in numbers.ports


def _said(chain: str, rules: list[dict[str, Any]], numbers: _Numbers) -> list[str]:
    """Return what a chain's rules say, with endpoints in the place of their indexes."""
    found = _STICKY_CHAIN.fullmatch(chain)
    if found is None:
        return [_rule(rule) for rule in rules]
    number = int(found[1])
    targets = numbers.targets[number]
    if found[2] not in _CLASSES:
        said = [_rule({**rule, "expr": _neutral(rule["expr"], number, targets)}) for rule in rules]
        return sorted(_STICKY_CHAIN.sub(lambda name: numbers.neutral(name[0]), text) for text in said)
    updates = [index for index, rule in enumerate(rules) if any("set" in statement for statement in rule["expr"])]
    if not updates:
        return [_rule(rule) for rule in rules]
    first, last = updates[0], updates[-1] + 1
    around = [_rule(rule) for rule in (*rules[:first], *rules[last:])]
    picks = f"picks {_chances(rules[first:last], number, targets)}"
    return [*(_STICKY_CHAIN.sub(lambda name: numbers.neutral(name[0]), text) for text in around), picks]


def _rule(rule: dict[str, Any]) -> str:
    return json.dumps([rule["expr"], rule.get("comment", "")])


def _neutral(said: Any, number: int, targets: Mapping[int, Target | None]) -> Any:
    """Return what a rule says, with "its number" and an endpoint where client, number and index are a key."""
    match said:
        case {"concat": [client, {"numgen": {"mod": 1, "offset": int(port)}}, {"numgen": {"mod": 1, "offset": index}}]}:
            return {"concat": [client, "its number" if port == number else port, f"{targets.get(index)}"]}
        case dict():
            return {name: _neutral(part, number, targets) for name, part in said.items()}
        case list():
            return [_neutral(part, number, targets) for part in said]
        case _:
            return said


def _chances(rules: list[dict[str, Any]], number: int, targets: Mapping[int, Target | None]) -> list[str]:
    """Return with what probability each endpoint is remembered, and how: one rule after the other draws."""
    chances: list[str] = []
    left = Fraction(1)
    for rule in rules:
        *conditions, update, jump = rule["expr"]
        taken = left
        for condition in conditions:
            match condition:
                case {"match": {"op": "<", "left": {"numgen": {"mod": total, "offset": 0}}, "right": cases}}:
                    taken *= Fraction(cases, total)
        element = update["set"]["elem"]["elem"]
        client, port, picked = element["val"]["concat"]
        drawn = picked["numgen"]
        how = (client, port["numgen"]["offset"] == number, element["timeout"], update["set"]["set"], len(jump))
        chances += [
            f"{taken / drawn['mod']} for {targets.get(index)} by {how}"
            for index in range(drawn["offset"], drawn["offset"] + drawn["mod"])
        ]
        left -= taken
    return sorted(chances)


def stale_chains(listing: Listing, wanted: frozenset[str]) -> list[str]:
    """Return the chains of ports that are sticky no longer; they are deleted a second after they are emptied."""
    numbers = _Numbers(listing, wanted).ports
    sticky = (found for found in map(_STICKY_CHAIN.fullmatch, listing.chains) if found is not None)
    return [found[0] for found in sticky if int(found[1]) not in numbers]


def difference_of_others(expected: Facts, without: Facts, found: Facts, before: Collection[str]) -> list[str]:
    """Return a line for each fact that is not as ``expected``, and that no Service which is left out accounts for.

    What would be another ``without`` them is theirs. They keep what they had, so that what nobody wants may be there
    if it was there ``before``.
    """
    theirs = {name for name in {*expected, *without} if expected.get(name) != without.get(name)}
    kept = {name for name in found if not expected.get(name) and (name in before or "sticky" in name)}
    excused = theirs | kept
    return difference(
        {name: fact for name, fact in expected.items() if name not in excused},
        {name: fact for name, fact in found.items() if name not in excused},
    )


def difference(expected: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """Return a line for each fact that only one side has, or has otherwise."""
    return [
        f"{name}: expected {expected.get(name)}, found {found.get(name)}"
        for name in sorted({*expected, *found})
        if expected.get(name) != found.get(name)
    ]
