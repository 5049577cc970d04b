"""Session affinity on a real kernel: clients and endpoint IDs survive restarts, upgrades and foreign changes."""

from collections.abc import Callable
from typing import Any

import pytest

from knft.errors import KernelError
from knft.families import Family
from knft.model.names import NamespacedName
from knft.model.unknown import ANYTHING, UnknownObjects
from knft.nft.codec.listing import TableListing
from knft.nft.objects import Array, ArrayName, ElementTimeout
from knft.nft.transaction import Transaction
from knft.render import wide
from knft.render.endpoint_ids import previous_ids
from knft.render.layout import is_marker
from knft.render.names import CLIENTS, endpoint_ids_map
from knft.sync.invalidation import Invalidation
from knft.sync.table_repair import RepairReport
from tests.support import equivalence
from tests.support.fake_clock import FakeClock
from tests.support.kernel_harness import CONFIG, KernelHarness, contents_of_fresh_start, service, slices
from tests.support.lab.namespace import Namespace

pytestmark = pytest.mark.kernel

HOUR = 3600.0
STICKY: dict[str, Any] = {"sessionAffinity": "ClientIP"}
CLIENT = {Family.IPV4: "10.250.0.1", Family.IPV6: "fd00:10:250::1"}
WEB = NamespacedName("default", "web")
ADDRESS = {Family.IPV4: "10.244.2.11", Family.IPV6: "fd00:10:244:2::11"}
"""The address of an endpoint."""


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def harness(namespace: Namespace, clock: FakeClock) -> KernelHarness:
    """Return a synced harness with a Service with session affinity, whose endpoints have changed, and another one."""
    harness = KernelHarness(namespace, clock=clock)
    harness.apply(service("web", node_port=30080, **STICKY), *slices("web", [11, 12, 13], local=[12]))
    harness.apply(service("plain", 20), *slices("plain", [21, 22]))
    harness.sync()
    clock.now += 1.0
    harness.apply(*slices("web", [11, 13, 14], local=[14]))
    harness.sync()
    return harness


def _nft(harness: KernelHarness, commands: str) -> None:
    """Run commands of another program, for the tables of both families."""
    for family in Family:
        harness.namespace.run(["nft", "-f", "-"], stdin=commands.replace("{table}", f"{family.nft} knft"))


def _ids(listing: TableListing) -> dict[ArrayName, Array]:
    return {name: array for name, array in listing.contents.arrays.items() if "endpoint-ids" in name.container}


def _add_client(harness: KernelHarness, family: Family) -> tuple[str, int]:
    """Add a client of an endpoint to the kernel's set, as rules do; return its key."""
    endpoint_id = max(number for array in _ids(harness.listing(family)).values() for number in array)  # type: ignore[type-var]
    assert isinstance(endpoint_id, int)
    element = f"{{ {CLIENT[family]} . {endpoint_id} timeout 3h expires 2h }}"
    harness.namespace.run(["nft", f"add element {family.nft} knft {CLIENTS} {element}"])
    return CLIENT[family], endpoint_id


def _replace_layout(harness: KernelHarness) -> None:
    """Give the tables another hook, as another version of knft may have it, so that they must be replaced."""
    _nft(
        harness,
        "delete chain {table} filter-forward\n"
        "add chain {table} filter-forward { type filter hook forward priority 7; }\n",
    )


def _damage_rules(harness: KernelHarness) -> None:
    """Delete the markers, as if another version of knft had created the tables, and empty the chains of affinity."""
    for family in Family:
        names = harness.listing(family).rule_counts
        edits = [f"delete chain {family.nft} knft {name}" for name in names if is_marker(name)]
        edits += [f"flush chain {family.nft} knft {name}" for name in names if "affinity-" in name]
        harness.namespace.run(["nft", "-f", "-"], stdin="\n".join(edits))


@pytest.mark.parametrize("change", [_replace_layout, _damage_rules], ids=["replaced table", "adopted table"])
@pytest.mark.parametrize("family", list(Family))
@pytest.mark.parametrize("refused", [0, 2])
def test_clients_and_ids_of_another_layout_are_kept(
    harness: KernelHarness, clock: FakeClock, family: Family, refused: int, *, change: Any
) -> None:
    """With refused commits, knft adds the Service ports one by one."""
    before, client = harness.listing(family), _add_client(harness, family)
    change(harness)
    second = _restarted(harness, clock)
    second.checked_tables[family].refused_commits = refused

    assert second.sync()[family].quarantined == {}

    after = second.listing(family)
    assert (before.rule_counts, before.contents, before.hooks) == (after.rule_counts, after.contents, after.hooks)
    ((key, memory),) = second.tables[family].dynamic_elements()[CLIENTS].items()
    assert key == client
    assert isinstance(memory, ElementTimeout)
    assert memory.timeout == 3 * HOUR
    assert 2 * HOUR - 60 < memory.expires <= 2 * HOUR


def _restarted(harness: KernelHarness, clock: FakeClock) -> KernelHarness:
    """Return a new process on the same kernel with the same objects, at another time, before its first sync."""
    clock.now += 1.0
    second = KernelHarness(harness.namespace, clock=clock)
    second.change((kind, name, item) for (kind, name), item in harness.objects.items())
    return second


@pytest.mark.parametrize("is_wide", [False, True])
def test_restart_sends_nothing_and_keeps_ids(
    harness: KernelHarness, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, *, is_wide: bool
) -> None:
    if is_wide:
        monkeypatch.setattr(wide, "COPIES_FACTOR", 0)
        harness.apply(service("web", node_port=30081, **STICKY), *slices("plain", [21, 23]))
        harness.sync()
    before = {family: harness.listing(family) for family in Family}
    second = _restarted(harness, clock)
    second.sync()
    for family in Family:
        assert second.last_transaction(family).is_empty
        assert _ids(second.listing(family)) == _ids(before[family])
        assert len(set().union(*_ids(before[family]).values())) == 3
    second.apply(*slices("web", [11, 13, 14, 15], local=[14]))
    second.sync()
    for family in Family:
        found = _ids(second.listing(family))
        assert all(set(array) <= set(found[name]) for name, array in _ids(before[family]).items())


OLD_CONTENTS = """
    add chain {table} sticky-7-cluster
    add chain {table} sticky-7-cluster-known
    add chain {table} sticky-9-cluster
    add chain {table} in-flight
    add rule {table} in-flight accept
    add rule {table} services jump in-flight
    add rule {table} sticky-7-cluster jump sticky-7-cluster-known
    add rule {table} sticky-7-cluster-known {known} @affinity update @affinity { {known} timeout 3h } {dnat}
    add element {table} affinity { {client} . 7 . 0 timeout 3h expires 2h }
    add element {table} sticky-ports { 7 comment "QKZT 1 10800 0 5d41402a default/web:http" : drop }
    add element {table} sticky-endpoints { 7 . 0 : {address} . 8080 }
    delete element {table} service-ips { {service} . tcp . 80 }
    add element {table} service-ips { {service} . tcp . 80 comment "default/web:http" : jump sticky-7-cluster }
"""
"""What earlier versions of knft wrote for a Service port with session affinity, into sets and maps that still exist."""


def _make_old(harness: KernelHarness) -> None:
    """Replace what is new by what an earlier version had."""
    for family in Family:
        listing = harness.listing(family)
        address = ADDRESS[family]
        endpoint = f"{address}:8080" if family is Family.IPV4 else f"[{address}]:8080"
        words = {
            "table": f"{family.nft} knft",
            "family": family.nft,
            "client": CLIENT[family],
            "address": address,
            "known": f"{family.nft} saddr . numgen random mod 1 offset 7 . numgen random mod 1",
            "dnat": f"meta l4proto tcp dnat to {endpoint}",
            "service": "10.96.0.10" if family is Family.IPV4 else "fd00:10:96::10",
        }
        edit = OLD_CONTENTS
        for name, word in words.items():
            edit = edit.replace(f"{{{name}}}", word)
        table = words["table"]
        edit += f"delete element {table} service-nodeports {{ tcp . 30080 }}\n"
        new = [name for name in listing.rule_counts if "affinity-" in name]
        edit += "".join(f"flush chain {table} {name}\n" for name in new)
        edit += "".join(f"delete chain {table} {name}\n" for name in new)
        edit += f"delete set {table} {CLIENTS}\n"
        edit += "".join(f"delete map {table} {name}\n" for name in listing.containers if "endpoint-ids" in name)
        edit += "".join(f"delete chain {table} {name}\n" for name in listing.rule_counts if is_marker(name))
        harness.namespace.run(["nft", "-f", "-"], stdin=edit)


@pytest.mark.parametrize(
    ("lasts", "refused"), [(True, 0), (True, 2), (False, 0)], ids=["", "refused commits", "Service deleted meanwhile"]
)
def test_table_of_an_earlier_version_is_adopted(
    harness: KernelHarness, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, *, lasts: bool, refused: int
) -> None:
    """It is not replaced, because connections would be lost, and clients keep their endpoints.

    With refused commits, knft adds the Service ports one by one.
    """
    _make_old(harness)
    second = _restarted(harness, clock)
    if not lasts:
        second.delete("Service", "web")
    replaced: list[object] = []
    for checked in second.checked_tables.values():
        monkeypatch.setattr(checked, "replace", replaced.append)
        checked.refused_commits = refused
    reports = second.sync()
    clock.now += 5.0
    second.sync()
    fresh = contents_of_fresh_start(second)
    for family in Family:
        found = second.listing(family)
        assert reports[family].repair == RepairReport()
        assert not [name for name in found.rule_counts if name.startswith(("sticky-", "in-flight"))]
        assert not [name for name in found.contents.arrays if name.container == "sticky-endpoints"]
        assert not [name for name, _ in found.contents.entries if name == "sticky-ports"]
        clients = second.tables[family].dynamic_elements()[CLIENTS]
        assert set(clients) == ({(CLIENT[family], _id_of(ADDRESS[family], found))} if lasts else set())
        assert second.proxiers[family].audit(second.tables[family]) == 0
    assert replaced == []
    found = second.listing()
    facts = (equivalence.facts(_with(found, contents), Family.IPV4, CONFIG) for contents in (fresh, found.contents))
    assert equivalence.difference(*facts) == []


def _id_of(address: str, listing: TableListing) -> int:
    """Return the ID of an endpoint of the only Service with session affinity."""
    arrays = listing.contents.arrays
    pairs = ((name, ArrayName(endpoint_ids_map(name.container), name.prefix)) for name in arrays)
    (found,) = {number for target, number in previous_ids(arrays, pairs).items() if target[0] == address}
    return found


def _with(listing: TableListing, contents: Any) -> TableListing:
    return TableListing(listing.rule_counts, listing.containers, contents)


@pytest.mark.parametrize("unknown", [ANYTHING, UnknownObjects(services=frozenset({WEB}))], ids=["any", "the Service"])
def test_unknown_service_of_an_earlier_version_keeps_its_chains(
    harness: KernelHarness, clock: FakeClock, unknown: UnknownObjects
) -> None:
    """Until its manifest can be read."""
    _make_old(harness)
    second = KernelHarness(harness.namespace, clock=clock)
    second.daemon.hold_removals(unknown)
    items = harness.objects.items()
    second.change((kind, name, item) for (kind, name), item in items if not name.startswith("web"))
    second.sync()
    counts = second.listing().rule_counts
    assert (counts["sticky-7-cluster"], counts["sticky-7-cluster-known"]) == (1, 1)
    second.change((kind, name, item) for (kind, name), item in items)
    second.daemon.release_removals()
    second.sync()
    clock.now += 5.0
    second.sync()
    after = second.listing()
    assert not [name for name in after.rule_counts if name.startswith("sticky-")]
    client = (CLIENT[Family.IPV4], _id_of(ADDRESS[Family.IPV4], after))
    assert set(second.tables[Family.IPV4].dynamic_elements()[CLIENTS]) == {client}


@pytest.mark.parametrize("again", ["released", "full sync", "restarted", "an object of the earlier version stays"])
def test_converted_service_port_keeps_its_ids(harness: KernelHarness, clock: FakeClock, again: str) -> None:
    """While other objects of the earlier version are left in the table, as if some manifest could not be read."""
    _make_old(harness)
    second = _restarted(harness, clock)
    second.daemon.hold_removals(UnknownObjects(services=frozenset({NamespacedName("default", "other")})))
    table = f"{Family.IPV4.nft} knft"
    second.namespace.run(["nft", f"add element {table} sticky-endpoints {{ 8 . 0 : 10.244.2.99 . 8080 }}"])
    other = '{ 10.96.0.99 . tcp . 80 comment "default/other:http" : goto sticky-8-cluster }'
    second.namespace.run(["nft", f"add chain {table} sticky-8-cluster; add element {table} service-ips {other}"])
    second.sync()
    converted = _ids(second.listing())
    assert converted
    clients = second.tables[Family.IPV4].dynamic_elements()[CLIENTS]
    assert list(clients) == [(CLIENT[Family.IPV4], _id_of(ADDRESS[Family.IPV4], second.listing()))]
    assert [name for name in second.listing().contents.arrays if name.container == "sticky-endpoints"]
    clock.now += 5.0
    match again:
        case "released":
            second.daemon.release_removals()
        case "restarted":
            second = _restarted(second, clock)
        case "full sync":
            for proxier in second.proxiers.values():
                proxier.invalidate(Invalidation(declarations=True))
        case _:
            second.daemon.release_removals()
            second.checked_tables[Family.IPV4].on_commit = _refuse_removal_of("sticky-endpoints")
    second.sync()
    assert _ids(second.listing()) == converted


def _refuse_removal_of(container: str) -> Callable[[Transaction], None]:
    def refuse(transaction: Transaction) -> None:
        if container in transaction.removed:
            msg = "refused for the test"
            raise KernelError(msg)

    return refuse


def test_plain_changes_do_not_read_the_clients_of_an_earlier_version(
    harness: KernelHarness, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although objects of it are left in the table."""
    _make_old(harness)
    second = _restarted(harness, clock)
    second.daemon.hold_removals(ANYTHING)
    second.sync()
    for checked in second.checked_tables.values():
        monkeypatch.setattr(checked, "dynamic_elements", None)
    clock.now += 1.0
    second.apply(*slices("plain", [21, 23]))
    second.sync()
    assert [name for name in second.listing().contents.arrays if name.container == "sticky-endpoints"]
    assert any(("10.244.2.23", 8080) in array for array in second.listing().contents.arrays.values())


@pytest.mark.parametrize("how", ["notified", "found at a restart"])
@pytest.mark.parametrize(
    ("name", "declaration"),
    [
        (f"set ip knft {CLIENTS}", "type inet_service; flags dynamic,timeout; elements = { 80 timeout 1h };"),
        ("map ip knft endpoint-ids-tcp", "type inet_service : mark; elements = { 80 : 1 };"),
    ],
    ids=["clients", "endpoint IDs"],
)
def test_set_or_map_of_wrong_type_is_replaced_with_the_table(
    harness: KernelHarness, clock: FakeClock, how: str, name: str, declaration: str
) -> None:
    """The other program had to empty the chains that use it."""
    before = harness.listing()
    edit = "".join(f"flush chain ip knft {chain}\n" for chain in before.rule_counts if "affinity-" in chain)
    edit += f"delete {name}\nadd {name} {{ {declaration} }}\n"
    harness.namespace.run(["nft", "-f", "-"], stdin=edit)
    if how == "notified":
        harness.proxiers[Family.IPV4].invalidate(Invalidation(declarations=True))
    else:
        harness = _restarted(harness, clock)
    report = harness.sync()[Family.IPV4]
    assert (report.quarantined, report.next_sync_within) == ({}, None)
    after = harness.listing()
    assert before.rule_counts == after.rule_counts
    facts = (equivalence.facts(listing, Family.IPV4, CONFIG) for listing in (before, after))
    assert equivalence.difference(*facts) == []


@pytest.mark.parametrize(
    ("is_new", "external", "early"),
    [
        pytest.param(False, {}, {"affinity-60-pool-tcp-2", "affinity-60-known-tcp-0"}, id="cluster IP only"),
        pytest.param(
            False,
            {"node_port": 30020},
            {
                *("affinity-60-pool-tcp-2", "affinity-60-known-tcp-0"),
                *("affinity-60-nodeport-pool-tcp-2", "affinity-60-nodeport-known-tcp-0"),
                "external-affinity-60-nodeport-pool-tcp-2",
            },
            id="with a NodePort",
        ),
        pytest.param(True, {"node_port": 30020}, set(), id="new Service"),
    ],
)
def test_new_chains_are_sent_first_if_replaced_verdicts_lead_to_them(
    harness: KernelHarness, external: dict[str, Any], early: set[str], *, is_new: bool
) -> None:
    """Chains that only new frontends lead to need no transaction of their own, which would double the time."""
    if not is_new:
        harness.apply(service("late", 30, **external), *slices("late", [11, 12]))
        harness.sync()
    sent = harness.checked_tables[Family.IPV4].transactions
    sent.clear()
    short = STICKY | {"sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}}}
    harness.apply(service("late", 30, **short, **external), *slices("late", [11, 12]))
    harness.sync()
    assert len(sent) == (2 if early else 1)
    assert {chain.name for chain in sent[0].new_chains} == early
    written = {chain.name for part in sent for chain in (*part.new_chains, *part.chains)}
    assert {"affinity-60-pool-tcp-2", "affinity-60-known-tcp-0"} <= written


def test_unused_chain_that_a_foreign_rule_uses_is_deleted_later(harness: KernelHarness, clock: FakeClock) -> None:
    """Its deletion is retried with backoff, without comparison; other chains are deleted."""
    used = "affinity-10800-known-tcp-0"
    _nft(harness, f"add chain {{table}} debug\nadd rule {{table}} debug goto {used}")
    harness.apply(service("web", node_port=30080))
    harness.sync()
    clock.now += HOUR
    table, pauses = harness.checked_tables[Family.IPV4], []
    reads = table.reads
    for _ in range(5):
        again_within = harness.sync()[Family.IPV4].next_sync_within
        assert again_within is not None
        pauses.append(round(again_within))
        clock.now += again_within
    assert pauses == [1, 2, 4, 8, 16]
    assert reads == table.reads
    counts = harness.listing().rule_counts
    assert {name: count for name, count in counts.items() if "affinity-" in name} == {used: 0}
    _nft(harness, "flush chain {table} debug\ndelete chain {table} debug")
    assert harness.sync()[Family.IPV4].next_sync_within is None
    assert used not in harness.listing().rule_counts
