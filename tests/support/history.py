"""History: a random cluster history served by knft on a real kernel, with the table checked after each sync.

The random generator is injected: hypothesis provides one that it can shrink, a soak test provides a seeded one.
"""

import itertools
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from operator import itemgetter
from random import Random

from knft.config import Config
from knft.decide.loopback import loopback_nodeport
from knft.delta.programmed import MAX_RETRY_DELAY_SECONDS
from knft.errors import KernelError
from knft.families import Family
from knft.model.names import ServicePortName
from knft.model.objects import KubeObject
from knft.nft.codec.listing import TableListing, parse_listing
from knft.render import layout
from knft.render.names import OWNED_CHAIN_PREFIXES, TABLE
from knft.render.pools import parse_shared_chain
from knft.sync.proxier import Proxier
from knft.sync.report import SyncReport
from knft.sync.state import ServiceState
from tests.support import equivalence
from tests.support.checked_observers import CheckedObservers
from tests.support.kernel_harness import CONFIG, KernelHarness, TextTable
from tests.support.lab.namespace import Namespace
from tests.support.random_objects import (
    NODE_ADDRESSES,
    NODES,
    SERVICE_CIDRS,
    SERVICES,
    SLICES,
    Traits,
    changed_traits,
    manifest,
    random_traits,
)

CONFIGS = (
    CONFIG,
    Config("node-1", detect_local_mode="NodeCIDR", nodeport_addresses=("192.0.2.0/24", "2001:db8:1::/64")),
    Config(
        "node-1",
        detect_local_mode="BridgeInterface",
        pod_interface="cni0",
        nodeport_addresses=("all",),
        localhost_nodeports=True,
    ),
    Config(
        "node-1",
        cluster_cidrs=("10.244.0.0/16",),
        masquerade_all=True,
        masquerade_bit=7,
        nodeport_addresses=("primary", "127.0.0.0/8", "::1/128"),
        localhost_nodeports=True,
    ),
    Config("node-1", cluster_cidrs=("10.244.0.0/16",), drop_invalid_packets=True),
)
"""Configurations of the node; a restart may change it. Their number stays, so that the pinned seeds' histories do."""

FEATURES = (
    "draining",
    "maglev",
    "source-hash",
    "draining and consistent hashing of one Service port",
    "NodePorts on loopback addresses",
    "dropped INVALID packets",
)
"""What is off by default, and random histories must turn on."""

NAMES = {"Service": SERVICES, "EndpointSlice": SLICES, "Node": NODES, "ServiceCIDR": SERVICE_CIDRS}

INITIAL_COUNTS = {"Service": 3, "EndpointSlice": 12, "Node": 1}
"""The number of initial objects. Below these numbers deletions are rare."""

DURATIONS = (0.3, 1.1, 6.0, 61.0, 3601.0, 11000.0)
"""Durations after which chains are deleted, affinity entries expire, and the table is compared."""

LOGGED_STEPS = 60
"""How many of the last steps a failure reports."""


NamedObject = tuple[str, str, KubeObject]
"""Kind and name of an object, and the object."""


class HistoryError(AssertionError):
    """The table is wrong, or what the observers receive; the message lists the differences."""


class History:
    """One cluster, one node and one kernel; ``steps`` counts the events, ``syncs`` the compared syncs."""

    def __init__(self, rng: Random) -> None:
        """Start with a small cluster, on a kernel without the table."""
        self.steps = 0
        self.syncs = 0
        self.degraded_syncs = 0
        """How many syncs left Service ports quarantined or objects orphaned."""
        self.features = Counter[str]()
        """How many successful syncs of a family had each of ``FEATURES``."""
        self._last_facts: dict[Family, Collection[str]] = {}
        self.step_log: deque[str] = deque(maxlen=LOGGED_STEPS)
        self._now = 100.0
        self._main_namespace, self._fresh_namespace = Namespace.create("main"), Namespace.create("fresh")
        self._config = rng.choice(CONFIGS)
        self._traits: dict[tuple[str, str], Traits] = {}
        self._addresses: frozenset[str] | None = None
        self._foreign_names: set[str] = set()
        """The names that another program has given to objects in the table."""
        self._is_settled = False
        """Whether nothing has happened since a successful sync."""
        self._harness = self._new_process(self._main_namespace, ())
        self._observers = CheckedObservers(self._config, self._now)
        for kind, count in INITIAL_COUNTS.items():
            for name in NAMES[kind][:count]:
                self._apply(kind, name, random_traits(kind, rng))
        self.steps = 0

    def close(self) -> None:
        """Close the namespaces."""
        self._main_namespace.close()
        self._fresh_namespace.close()

    def _new_process(self, namespace: Namespace, objects: Iterable[NamedObject]) -> KernelHarness:
        """Return a new process with the addresses and these objects, before its first sync."""
        with namespace.entered():
            harness = KernelHarness(namespace, self._config, lambda: self._now, TextTable)
        if self._addresses is not None:
            harness.daemon.update_local_addresses(self._addresses)
        harness.change(objects)
        return harness

    def _log_step(self, step: str) -> None:
        self.steps += 1
        self.step_log.append(step)

    # Events of objects.

    def add(self, kind: str, rng: Random) -> None:
        """Create an object, or replace the one of that name by a random one."""
        self._apply(kind, rng.choice(NAMES[kind]), random_traits(kind, rng))

    def change(self, kind: str, rng: Random) -> None:
        """Change one field of an object, if there is one of that kind."""
        names = [name for found, name in self._traits if found == kind]
        if names:
            name = rng.choice(names)
            self._apply(kind, name, changed_traits(kind, self._traits[kind, name], rng))

    def delete(self, kind: str, rng: Random) -> None:
        """Delete an object, if there is one; rarely if there are few."""
        names = [name for found, name in self._traits if found == kind]
        if names and (len(names) > INITIAL_COUNTS.get(kind, 0) or rng.random() < 0.3):
            self._delete(kind, rng.choice(names))

    def delete_all(self) -> None:
        """Delete all objects."""
        for kind, name in tuple(self._traits):
            self._delete(kind, name)

    def _delete(self, kind: str, name: str) -> None:
        self._log_step(f"delete {kind} {name}")
        del self._traits[kind, name]
        self._harness.delete(kind, name)
        self._is_settled = False

    def _apply(self, kind: str, name: str, traits: Traits) -> None:
        self._log_step(f"apply {kind} {name} {traits}")
        self._traits[kind, name] = traits
        self._harness.apply(manifest(kind, name, traits))
        self._is_settled = False

    def change_addresses(self, rng: Random) -> None:
        """Change the addresses of the node's interfaces."""
        chosen = rng.sample(NODE_ADDRESSES, rng.randint(0, 3))
        self._log_step(f"addresses {chosen}")
        self._addresses = frozenset(chosen)
        self._harness.daemon.update_local_addresses(self._addresses)
        self._is_settled = False

    # Events of knft.

    def pass_time(self, rng: Random) -> None:
        """Advance the clock by seconds or hours."""
        seconds = rng.choice(DURATIONS)
        self._log_step(f"pass {seconds} s")
        self._now += seconds

    def fail_next_requests(self, rng: Random) -> None:
        """Let the next commit or read of a family be refused, or let a commit report a failure although it succeeds."""
        checked = self._harness.checked_tables[rng.choice(tuple(Family))]
        for _ in range(rng.randint(1, 2)):
            failure = rng.choice(("refused_commits", "misreported_commits", "refused_reads"))
            self._log_step(f"fail: {failure}")
            setattr(checked, failure, 1)
        self._is_settled = False

    def restart(self, rng: Random) -> None:
        """Start a new process on the same kernel, sometimes with other flags; the objects arrive in random order."""
        objects = self._objects()
        rng.shuffle(objects)
        settled = self._is_settled
        if rng.random() < 0.25:
            self._config, settled = rng.choice(CONFIGS), False
        self._log_step(f"restart with {self._config}")
        self._harness = self._new_process(self._main_namespace, objects)
        self._observers = CheckedObservers(self._config, self._now)
        self.sync()
        if settled:
            self._check_nothing_sent()
        if self._is_settled:
            self.compare_rules()

    def damage_table(self, rng: Random) -> None:
        """Let another program flush or replace a part of a table, then restart knft, which has to repair it."""
        family = rng.choice(tuple(Family))
        listing = self._harness.tables[family].read()
        if listing is None:
            return
        part = rng.choice(rng.choice(flushable_objects(listing)))
        self._log_step(f"another program flushes {family.value} {part}")
        verb, _, name = part.partition(" ")
        place = f"{family.nft} {TABLE} {name}"
        replaced = listing.rule_counts[name] if verb == "chain" and rng.random() < 0.5 else 0
        self._run_foreign_commands("\n".join([f"flush {verb} {place}", *[f"add rule {place} continue"] * replaced]))
        self._is_settled = False
        self.restart(rng)

    def _run_foreign_commands(self, commands: str) -> None:
        """Run nft commands of another program."""
        self._main_namespace.run(["nft", "-f", "-"], stdin=commands)

    # Checks.

    def sync(self) -> None:
        """Sync both families, and check those whose sync succeeds."""
        self._log_step("sync")
        for family in Family:
            self._observers.sync_started(family)
        reports = {family: _synced(proxier) for family, proxier in self._harness.proxiers.items()}
        self._is_settled = all(report is not None and not _is_degraded(report) for report in reports.values())
        quarantined = {family: report.quarantined for family, report in reports.items() if report is not None}
        fresh = self._rendered()
        without = self._rendered(quarantined) if any(quarantined.values()) else fresh
        for family, report in reports.items():
            self._check_table(family, report, fresh[family], without[family])
            self._check_observers(family, report)
            if report is not None:
                self.features.update(features(self._config, self._harness.proxiers[family].state))
        self.syncs += 1

    def _check_table(
        self, family: Family, report: SyncReport | None, fresh: TableListing, without: TableListing
    ) -> None:
        """Compare the kernel's table with a fresh process; skip what belongs to quarantined Service ports."""
        listing = self._harness.tables[family].read()
        found = self._facts(listing, family) if listing is not None else {}
        expected = self._facts(fresh, family)
        if report is not None and _is_degraded(report):
            # After a failed sync the previous contents are unknown.
            before = {*self._last_facts.get(family, found), *self._foreign_facts(found)}
            lines = equivalence.difference_except_quarantined(expected, self._facts(without, family), found, before)
            self._raise_if_any(family, lines)
            self.degraded_syncs += 1
        elif report is not None:
            self._compare(family, expected, found)
        self._last_facts.pop(family, None)
        if report is not None and not report.orphan_error:
            self._last_facts[family] = found

    def _check_observers(self, family: Family, report: SyncReport | None) -> None:
        """Compare the endpoints to drain and the NodePorts to forward with those that the manifests require."""
        if report is None:
            self._raise_if_any(family, self._observers.sync_failed(family))
            return
        manifests = [manifest(kind, name, traits) for (kind, name), traits in self._traits.items()]
        state = self._harness.proxiers[family].state
        self._raise_if_any(family, self._observers.sync_succeeded(report, state, manifests, self._now))

    def _foreign_facts(self, found: equivalence.Facts) -> set[str]:
        """Return the facts about foreign objects, which stay while a quarantined port's chain refers to them."""
        return {fact for fact in found if any(name in fact for name in self._foreign_names)}

    def _rendered(self, without: Mapping[Family, Collection[ServicePortName]] = {}) -> dict[Family, TableListing]:
        return equivalence.rendered((item for *_, item in self._objects()), self._addresses, self._config, without)

    def _objects(self) -> list[NamedObject]:
        """Return the objects sorted by name, which differs from their order of arrival."""
        return [(kind, name, item) for (kind, name), item in sorted(self._harness.objects.items(), key=itemgetter(0))]

    def _facts(self, listing: TableListing, family: Family) -> equivalence.Facts:
        return equivalence.facts(listing, family, self._config)

    def _compare(self, family: Family, expected: equivalence.Facts, found: equivalence.Facts) -> None:
        self._raise_if_any(family, equivalence.difference(expected, found))

    def _raise_if_any(self, family: Family, lines: Collection[str]) -> None:
        if lines:
            steps = itertools.chain([f"{self.steps} steps, of which the last were:"], self.step_log)
            raise HistoryError("\n".join([f"{family.value}:", *lines, *steps]))

    def _check_nothing_sent(self) -> None:
        """A restart on an unchanged cluster sends no elements."""
        for family, checked in self._harness.checked_tables.items():
            sent = checked.transactions[-1]
            self._compare(family, {}, {f"sent after a restart: {name}": True for name in (*sent.removed, *sent.added)})

    def finish(self) -> None:
        """Sync until nothing is left to do; then all chains that are not needed are deleted, too."""
        for checked in self._harness.checked_tables.values():
            checked.stop_failing()
        # Until quarantined Service ports are retried.
        self._now += 2 * MAX_RETRY_DELAY_SECONDS
        for _ in range(3):
            self.sync()
            self._now += 10.0
        self._raise_if_any(
            Family.IPV4, [] if self._is_settled else ["a Service port is quarantined although nothing fails"]
        )
        self.compare_rules()
        for family, proxier in self._harness.proxiers.items():
            stale = equivalence.stale_chains(self._harness.listing(family), proxier.state.affinity_timeouts())
            self._compare(family, {}, {f"stale chain {name}": True for name in stale})

    def compare_rules(self) -> None:
        """Compare the tables, with their rules, with those of a fresh process on another kernel."""
        fresh = self._new_process(self._fresh_namespace, self._objects())
        for table in fresh.tables.values():
            table.remove()
        fresh.sync()
        for family in Family:
            self._compare(family, *(self._facts_and_rules(harness, family) for harness in (fresh, self._harness)))

    def _facts_and_rules(self, harness: KernelHarness, family: Family) -> equivalence.Facts:
        table = harness.tables[family]
        assert isinstance(table, TextTable)
        text = table.text() or ""
        listing = parse_listing(text)
        return self._facts(listing, family) | equivalence.rules(text, listing)


def _synced(proxier: Proxier) -> SyncReport | None:
    """Sync; return None if it failed as the test requested."""
    try:
        return proxier.sync()
    except KernelError as error:
        if "for the test" not in str(error):
            raise
        return None


def features(config: Config, state: ServiceState) -> Iterator[str]:
    """Yield those of ``FEATURES`` that are in force."""
    ports = [port for port in map(state.service_port, state.service_ports()) if port is not None]
    if any(port.resets_connections for port in ports):
        yield "draining"
    yield from {port.load_balancing for port in ports if port.hashes_clients}
    if any(port.resets_connections and port.hashes_clients for port in ports):
        yield "draining and consistent hashing of one Service port"
    if config.serves_localhost_nodeports(state.node.family):
        plans = map(state.plan, state.service_ports())
        if any(loopback_nodeport(plan) for plan in plans if plan is not None):
            yield "NodePorts on loopback addresses"
    if config.drop_invalid_packets:
        yield "dropped INVALID packets"


def _is_degraded(report: SyncReport) -> bool:
    return bool(report.quarantined or report.orphan_error)


def flushable_objects(listing: TableListing) -> list[list[str]]:
    """Return what can be flushed, in groups that are equally likely."""
    owned = [f"chain {name}" for name in sorted(listing.rule_counts) if name.startswith(OWNED_CHAIN_PREFIXES)]
    shared = [f"chain {name}" for name in sorted(listing.rule_counts) if parse_shared_chain(name)]
    skeleton = [f"chain {name}" for name in sorted(listing.rule_counts)]
    containers = [f"{_kind_of(name)} {name}" for name in sorted(listing.containers)]
    return [group for group in (skeleton, shared, owned, containers) if group]


_MAPS = frozenset(
    container.name
    for config in CONFIGS
    for container in layout.containers(Family.IPV4, config, hashing=True)
    if container.is_map
)


def _kind_of(container: str) -> str:
    # Another program's maps have this ending (add_foreign_objects).
    return "map" if container in _MAPS or container.endswith("-map") else "set"
