"""Equivalence of tables: after any history a table equals what a fresh process would render.

Not compared: the order of endpoints, their IDs, unused shared chains, and affinity entries. Each endpoint of a Service
port with session affinity must have an ID, the same in all arrays. A table is described by *facts* that leave these
out; two tables are compared fact by fact.
See docs/verification.md#equivalence.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from knft.config import Config
from knft.families import Family
from knft.model.names import ServicePortName
from knft.model.objects import KubeObject, ObjectChange
from knft.nft.codec.listing import TableListing
from knft.nft.expressions import Goto, Jump
from knft.nft.objects import ArrayName, Contents, EndpointId, Entry, Key, Target
from knft.nft.transaction import Transaction
from knft.render.layout import HASHED_MAPS
from knft.render.names import HASHED_MAP_PREFIX, SERVICE_IPS, SERVICE_NODEPORTS, WIDE_IDS, endpoint_ids_map
from knft.render.pools import affinity_timeout, parse_shared_chain, shared_chain, with_targets
from knft.render.wide import wide_number
from knft.sync.assemble import rendering_daemon
from knft.sync.state import ServiceState

Facts = dict[str, Any]

_IDS = "endpoint-ids"
"""A part of the names of the maps of endpoint IDs."""

_DIFFERENT_IDS = "IDs of "
"""Begins the name of the fact that an endpoint of a Service port has several IDs."""


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
    arrays: dict[ArrayName, list[Target | EndpointId]] = {}
    for container, elements in sent.added.items():
        for key, value in elements.items():
            if isinstance(value, Entry):
                contents.entries[container, key] = value
            elif value is None:
                contents.members.add((container, key))
            elif isinstance(value, tuple | int):
                arrays.setdefault(ArrayName(container, key[:-1]), []).append(value)
    contents.arrays.update((name, tuple(values)) for name, values in arrays.items())
    return contents


def facts(listing: TableListing, family: Family, config: Config) -> Facts:
    """Return the facts of a table."""
    return {
        **dict(_elements(listing.contents)),
        **dict(_endpoint_ids(listing.contents)),
        **dict(_chains(listing, family, config)),
        # The maps of consistent hashing stay when the last Service port with consistent hashing goes.
        **{f"container {name}": True for name in listing.containers if name not in HASHED_MAPS},
    }


def _elements(contents: Contents) -> Iterator[tuple[str, Any]]:
    for (container, key), entry in contents.entries.items():
        verdict = entry.verdict
        target = verdict.chain if isinstance(verdict, Goto | Jump) else type(verdict).__name__
        yield f"{container} {key}", (target, entry.comment)
    for container, key in contents.members:
        yield f"{container} {key}", True
    for name, array in contents.arrays.items():
        if _IDS not in name.container:
            # The length reveals gaps. The slots of a table have one order.
            is_ordered = name.container.startswith(HASHED_MAP_PREFIX)
            targets = [target for target in array if target]
            yield f"{name.container} {name.prefix}", (len(array), targets if is_ordered else sorted(targets))


def _endpoint_ids(contents: Contents) -> Iterator[tuple[str, Any]]:
    """Yield facts about endpoint IDs, without the IDs themselves."""
    service_ports = _service_ports(contents)
    endpoints = {
        ArrayName(endpoint_ids_map(name.container), name.prefix): array
        for name, array in contents.arrays.items()
        if _IDS not in name.container
    }
    ids_of_targets: dict[tuple[str, Target], set[EndpointId]] = {}
    for name, ids in contents.arrays.items():
        if _IDS not in name.container:
            continue
        targets = endpoints.get(name, ())
        is_right = len(ids) == len(targets) == len({number for number in ids if number is not None})
        array = f"{name.container} {name.prefix}"
        yield array, "one for each endpoint" if is_right else f"{tuple(ids)} for {tuple(targets)}"
        service_port = service_ports.get(_frontend(name), array)
        for target, number in zip(targets, ids, strict=False):
            if isinstance(target, tuple) and isinstance(number, int):
                ids_of_targets.setdefault((service_port, target), set()).add(number)
    for (service_port, target), numbers in ids_of_targets.items():
        if len(numbers) > 1:
            yield f"{_DIFFERENT_IDS}{target} for {service_port}", sorted(numbers)


def _frontend(ids: ArrayName) -> tuple[str, Key]:
    """Return the protocol and frontend of an array of endpoint IDs; for a wide Service port, "wide" and its number."""
    if ids.container == WIDE_IDS:
        return "wide", ids.prefix[:1]
    return ids.container.rpartition("-")[2], ids.prefix


def _service_ports(contents: Contents) -> dict[tuple[str, Key], str]:
    """Return the names of the Service ports by frontend, in the form of ``_frontend``."""
    found: dict[tuple[str, Key], str] = {}
    for (container, key), entry in contents.entries.items():
        if container in (SERVICE_IPS, SERVICE_NODEPORTS):
            protocol = str(key[-2])
            name = f"{entry.comment} {protocol}"
            found[protocol, (*key[:-2], key[-1])] = name
            number = wide_number(entry.verdict.chain) if isinstance(entry.verdict, Goto) else None
            if number is not None:
                found["wide", (number,)] = name
    return found


def _chains(listing: TableListing, family: Family, config: Config) -> Iterator[tuple[str, Any]]:
    needed = _needed(listing.contents)
    for name in needed - listing.rule_counts.keys():
        yield f"chain {name}", "missing"
    for name, count in listing.rule_counts.items():
        shared = parse_shared_chain(name)
        if shared is not None and name not in needed:
            # Unused chains may be needed later, so they must be complete, except those that wait to be deleted.
            waits = affinity_timeout(shared) > 0 and not count
            if not waits and count != len(shared_chain(shared, family, config).rules):
                yield f"chain {name}", count
        elif count or wide_number(name) is None:  # An empty chain of a wide Service port waits to be deleted.
            yield f"chain {name}", count


def _needed(contents: Contents) -> set[str]:
    """Return the shared chains that elements need, directly or through others."""
    gotos = {entry.verdict.chain for entry in contents.entries.values() if isinstance(entry.verdict, Goto)}
    specs = (spec for spec in map(parse_shared_chain, gotos) if spec is not None)
    return {part.name for spec in specs for part in with_targets(spec)}


def rules(text: str, listing: TableListing) -> Facts:
    """Return the facts about rules: those of reachable chains."""
    needed = _needed(listing.contents)
    found: dict[str, list[str]] = {}
    for item in json.loads(text)["nftables"]:
        if "rule" in item:
            rule, chain = item["rule"], item["rule"]["chain"]
            if parse_shared_chain(chain) is None or chain in needed:
                found.setdefault(chain, []).append(json.dumps([rule["expr"], rule.get("comment", "")]))
    return {f"rules {chain}": texts for chain, texts in found.items()}


def stale_chains(listing: TableListing, affinity_timeouts: Collection[int]) -> list[str]:
    """Return the chains that knft should have deleted.

    They are the empty ones of wide Service ports, and shared chains for affinity timeouts that no Service port has.
    """
    shared = ((name, parse_shared_chain(name)) for name in listing.rule_counts)
    used = {0, *affinity_timeouts}
    unused = [name for name, chain in shared if chain is not None and affinity_timeout(chain) not in used]
    empty = [name for name, count in listing.rule_counts.items() if wide_number(name) is not None and not count]
    return empty + unused


def difference_except_quarantined(
    expected: Facts, expected_without_quarantined: Facts, found: Facts, names_before: Collection[str]
) -> list[str]:
    """Return a line for each fact that differs from ``expected`` and that no quarantined Service port explains.

    Facts that differ between ``expected`` and ``expected_without_quarantined`` belong to quarantined Service ports, and
    are not compared. These Service ports keep their elements, so additional facts are accepted if their names are in
    ``names_before``, the facts before the sync. A frontend that could not be removed keeps the IDs that its endpoints
    had; if such an endpoint is removed and added again, it has a new ID for the other frontends.
    """
    quarantined_names = {
        name
        for name in {*expected, *expected_without_quarantined}
        if expected.get(name) != expected_without_quarantined.get(name)
    }
    kept = {name for name in found if not expected.get(name) and name in names_before}
    if kept:
        kept |= {name for name in found if name.startswith(_DIFFERENT_IDS)}
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
