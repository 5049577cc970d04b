"""History: a cluster's life at random, with knft at work on a real kernel, and the law checked after every sync.

What happens is drawn from any ``random.Random``, so that a property test can shrink it and a soak can go on for days.
"""

import itertools
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from operator import itemgetter
from random import Random

from knft.config import Config
from knft.delta.programmed import LONGEST_PAUSE_SECONDS
from knft.errors import KernelError
from knft.model.names import Family, ServicePortName
from knft.model.objects import KubeObject
from knft.nft.codec.listing import Listing, parse_listing
from knft.render import layout
from knft.render.names import NFT_FAMILIES, STICKY_PREFIX, TABLE
from knft.render.pools import parse_shared_chain
from knft.sync.proxier import Proxier
from knft.sync.report import SyncReport
from tests.kernel import law
from tests.kernel.harness import CONFIG, KernelHarness, ReadableTable
from tests.kernel.random_objects import (
    MACHINE_ADDRESSES,
    NODES,
    SERVICE_CIDRS,
    SERVICES,
    SLICES,
    Traits,
    changed,
    drawn,
    manifest,
)
from tests.support.lab.namespace import Namespace

CONFIGS = (
    CONFIG,
    Config("node-1", detect_local_mode="NodeCIDR", nodeport_addresses=("192.0.2.0/24", "2001:db8:1::/64")),
    Config("node-1", detect_local_mode="BridgeInterface", pod_interface="cni0", nodeport_addresses=("all",)),
    Config("node-1", cluster_cidrs=("10.244.0.0/16",), masquerade_all=True, masquerade_bit=7),
)
"""What a node may be set to; a restart may bring another."""

NAMES = {"Service": SERVICES, "EndpointSlice": SLICES, "Node": NODES, "ServiceCIDR": SERVICE_CIDRS}

BEGINNING = {"Service": 3, "EndpointSlice": 12, "Node": 1}
"""What there is at first, so that what happens next means something; where there is less, little is deleted."""

PAUSES = (0.3, 1.1, 6.0, 61.0, 3601.0, 11000.0)
"""Seconds: until chains are deleted, affinity timeouts end, and everything is compared."""

LINES = 60
"""How much of what happened a failure tells."""


Named = tuple[str, str, KubeObject]
"""An object, its kind and its name."""


class LawBrokenError(AssertionError):
    """The kernel's table is not what a fresh process would render; the lines say where."""


class History:
    """One cluster, one node, one kernel; ``steps`` counts what has happened, ``syncs`` what was compared."""

    def __init__(self, chance: Random) -> None:
        """Start with a small cluster, on a kernel without the table."""
        self.steps = 0
        self.syncs = 0
        self.syncs_without_some = 0
        """How many left Service ports out, or what nobody wants in."""
        self._found: dict[Family, Collection[str]] = {}
        self.said: deque[str] = deque(maxlen=LINES)
        self._now = 100.0
        self._lived, self._other = Namespace.create("lived"), Namespace.create("fresh")
        self._config = chance.choice(CONFIGS)
        self._traits: dict[tuple[str, str], Traits] = {}
        self._addresses: frozenset[str] | None = None
        self._quiet = False
        """Whether nothing has happened since a sync that succeeded."""
        self._harness = self._new_process(self._lived, ())
        for kind, count in BEGINNING.items():
            for name in NAMES[kind][:count]:
                self._apply(kind, name, drawn(kind, chance))
        self.steps = 0

    def close(self) -> None:
        """Let go of the namespaces."""
        self._lived.close()
        self._other.close()

    def _new_process(self, namespace: Namespace, objects: Iterable[Named]) -> KernelHarness:
        """Return a process that has been told of the addresses and of these objects, not yet synced."""
        with namespace.entered():
            harness = KernelHarness(namespace, self._config, lambda: self._now, ReadableTable)
        if self._addresses is not None:
            harness.daemon.note_addresses(self._addresses)
        harness.change(objects)
        return harness

    def _happens(self, what: str) -> None:
        self.steps += 1
        self.said.append(what)

    # What may happen to objects.

    def add(self, kind: str, chance: Random) -> None:
        """Make an object, or replace the one of that name by quite another."""
        self._apply(kind, chance.choice(NAMES[kind]), drawn(kind, chance))

    def change(self, kind: str, chance: Random) -> None:
        """Change one field of an object, where there is one."""
        names = [name for found, name in self._traits if found == kind]
        if names:
            name = chance.choice(names)
            self._apply(kind, name, changed(kind, self._traits[kind, name], chance))

    def delete(self, kind: str, chance: Random) -> None:
        """Delete an object, where there is one; rarely where there are few, since nothing happens to nothing."""
        names = [name for found, name in self._traits if found == kind]
        if names and (len(names) > BEGINNING.get(kind, 0) or chance.random() < 0.3):
            name = chance.choice(names)
            self._happens(f"delete {kind} {name}")
            del self._traits[kind, name]
            self._harness.delete(kind, name)
            self._quiet = False

    def _apply(self, kind: str, name: str, traits: Traits) -> None:
        self._happens(f"apply {kind} {name} {traits}")
        self._traits[kind, name] = traits
        self._harness.apply(manifest(kind, name, traits))
        self._quiet = False

    def change_addresses(self, chance: Random) -> None:
        """Give the machine's interfaces other addresses."""
        chosen = chance.sample(MACHINE_ADDRESSES, chance.randint(0, 3))
        self._happens(f"addresses {chosen}")
        self._addresses = frozenset(chosen)
        self._harness.daemon.note_addresses(self._addresses)
        self._quiet = False

    # What may happen to knft.

    def pass_time(self, chance: Random) -> None:
        """Let seconds or hours pass."""
        seconds = chance.choice(PAUSES)
        self._happens(f"pass {seconds} s")
        self._now += seconds

    def fail(self, chance: Random) -> None:
        """Have what a family asks of the kernel fail next, in one way or in several."""
        port = self._harness.ports[chance.choice(tuple(Family))]
        for _ in range(chance.randint(1, 2)):
            way = chance.choice(("refuse", "deceive", "refuse_reads"))
            self._happens(f"fail: {way}")
            setattr(port, way, 1)
        self._quiet = False

    def restart(self, chance: Random) -> None:
        """Start a new process on the same kernel, sometimes with other flags; the objects come in another order."""
        objects = self._objects()
        chance.shuffle(objects)
        quiet = self._quiet
        if chance.random() < 0.25:
            self._config, quiet = chance.choice(CONFIGS), False
        self._happens(f"restart with {self._config}")
        self._harness = self._new_process(self._lived, objects)
        self.sync()
        if quiet:
            self._expect_nothing_sent()
        if self._quiet:
            self.compare_rules()

    def damage(self, chance: Random) -> None:
        """Have somebody flush a part of a table, or replace its rules, and restart, which is when it is noticed."""
        family = chance.choice(tuple(Family))
        listing = self._harness.tables[family].read()
        if listing is None:
            return
        part = chance.choice(chance.choice(damageable(listing)))
        self._happens(f"somebody flushes {family.value} {part}")
        verb, _, name = part.partition(" ")
        place = f"{NFT_FAMILIES[family]} {TABLE} {name}"
        replaced = listing.chains[name] if verb == "chain" and chance.random() < 0.5 else 0
        self._somebody_does("\n".join([f"flush {verb} {place}", *[f"add rule {place} continue"] * replaced]))
        self._quiet = False
        self.restart(chance)

    def _somebody_does(self, commands: str) -> None:
        """Have another program change the kernel."""
        self._lived.run(["nft", "-f", "-"], stdin=commands)

    # And what must be so.

    def sync(self) -> None:
        """Sync both families, and hold those that succeed to the law."""
        self._happens("sync")
        reports = {family: _synced(proxier) for family, proxier in self._harness.proxiers.items()}
        self._quiet = all(report is not None and not _has_left_something(report) for report in reports.values())
        left_out = {family: report.left_out for family, report in reports.items() if report is not None}
        fresh = self._rendered()
        without = self._rendered(left_out) if any(left_out.values()) else fresh
        for family, report in reports.items():
            self._hold_to_the_law(family, report, fresh[family], without[family])
        self.syncs += 1

    def _hold_to_the_law(self, family: Family, report: SyncReport | None, fresh: Listing, without: Listing) -> None:
        """Compare all that is held with a fresh process; where somebody is left out, all that is not theirs."""
        wanted = law.sticky_ports(fresh)
        held = self._harness.tables[family].read()
        found = self._facts(held, wanted, family) if held is not None else {}
        expected = self._facts(fresh, wanted, family)
        if report is not None and _has_left_something(report):
            # After a sync that failed it is not known what was there before.
            before = self._found.get(family, found)
            lines = law.difference_of_others(expected, self._facts(without, wanted, family), found, before)
            self._tell(family, lines)
            self.syncs_without_some += 1
        elif report is not None:
            self._compare(family, expected, found)
        self._found.pop(family, None)
        if report is not None and not report.unswept:
            self._found[family] = found

    def _rendered(self, without: Mapping[Family, Collection[ServicePortName]] = {}) -> dict[Family, Listing]:
        return law.rendered((item for *_, item in self._objects()), self._addresses, self._config, without)

    def _objects(self) -> list[Named]:
        """Return the objects in the order of their names, which is another than that in which they came."""
        return [(kind, name, item) for (kind, name), item in sorted(self._harness.objects.items(), key=itemgetter(0))]

    def _facts(self, listing: Listing, wanted: frozenset[str], family: Family) -> law.Facts:
        return law.facts(listing, wanted, family, self._config)

    def _compare(self, family: Family, expected: law.Facts, found: law.Facts) -> None:
        self._tell(family, law.difference(expected, found))

    def _tell(self, family: Family, lines: Collection[str]) -> None:
        if lines:
            happened = itertools.chain([f"{self.steps} steps, of which the last were:"], self.said)
            raise LawBrokenError("\n".join([f"{family.value}:", *lines, *happened]))

    def _expect_nothing_sent(self) -> None:
        """A restart on an unchanged cluster sends no element; what is remembered of sticky ports may change."""
        for family, port in self._harness.ports.items():
            sent = port.sent[-1]
            names = [name for name in (*sent.removed, *sent.added) if "sticky" not in name]
            self._compare(family, {}, {f"sent after a restart: {name}": True for name in names})

    def finish(self) -> None:
        """Sync until nothing is left to be done: then also the chains that were to be deleted are gone."""
        for port in self._harness.ports.values():
            port.heal()
        # Until whoever is left out is tried again.
        self._now += 2 * LONGEST_PAUSE_SECONDS
        for _ in range(3):
            self.sync()
            self._now += 10.0
        self._tell(Family.IPV4, [] if self._quiet else ["something is left out for no reason"])
        self.compare_rules()
        for family, fresh in self._rendered().items():
            stale = law.stale_chains(self._harness.held(family), law.sticky_ports(fresh))
            self._compare(family, {}, {f"stale chain {name}": True for name in stale})

    def compare_rules(self) -> None:
        """Hold the tables, rules and all, to what a fresh process makes on another kernel."""
        fresh = self._new_process(self._other, self._objects())
        for table in fresh.tables.values():
            table.remove()
        fresh.sync()
        for family in Family:
            wanted = law.sticky_ports(fresh.held(family))
            self._compare(family, *(self._whole(harness, family, wanted) for harness in (fresh, self._harness)))

    def _whole(self, harness: KernelHarness, family: Family, wanted: frozenset[str]) -> law.Facts:
        table = harness.tables[family]
        assert isinstance(table, ReadableTable)
        text = table.text() or ""
        listing = parse_listing(text)
        return self._facts(listing, wanted, family) | law.rules(text, listing, wanted)


def _synced(proxier: Proxier) -> SyncReport | None:
    """Sync, and return None where that failed; only a failure that was asked for is one that may be."""
    try:
        return proxier.sync()
    except KernelError as error:
        if "for the test" not in str(error):
            raise
        return None


def _has_left_something(report: SyncReport) -> bool:
    return bool(report.left_out or report.unswept)


def damageable(listing: Listing) -> list[list[str]]:
    """Return what can be flushed, in groups of which each is as likely as the others."""
    sticky = [f"chain {name}" for name in sorted(listing.chains) if name.startswith(STICKY_PREFIX)]
    shared = [f"chain {name}" for name in sorted(listing.chains) if parse_shared_chain(name)]
    skeleton = [f"chain {name}" for name in sorted(listing.chains)]
    containers = [f"{_kind_of(name)} {name}" for name in sorted(listing.containers)]
    return [group for group in (skeleton, shared, sticky, containers) if group]


_MAPS = frozenset(container.name for container in layout.containers(Family.IPV4) if container.is_map)


def _kind_of(container: str) -> str:
    return "map" if container in _MAPS else "set"
