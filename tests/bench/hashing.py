"""``python -m tests.bench.hashing`` measures consistent hashing: shares, moved clients, the cost of a change, memory.

It prints three tables:

- Shares and moved clients need no kernel. Random clients are hashed as the kernel hashes them (knft.interpret.jhash,
  which tests/packets compares with the kernel). χ² compares the clients of each endpoint with equal shares; p is the
  probability of a larger χ² if shares are equal.
- Changes are those of one Service, with knft in a network namespace: an endpoint goes or comes. Its times and CPU times
  are ratios to those of a Service with ``random`` in another namespace, which changes in turn.
- Memory is that of the kernel of the whole machine, for many Services, each kind in a network namespace of its own.
  Clients with ClientIP affinity are elements as a packet would add them, added with nft.
"""

import argparse
import itertools
import math
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from ipaddress import IPv4Address
from random import Random
from statistics import NormalDist, fmean, median

from msgspec import Struct, structs

from knft.families import Family
from knft.interpret.jhash import hash_slot
from knft.kernel.table import KernelTable
from knft.nft.objects import Target
from knft.render.hashing import SEED
from knft.render.maglev import maglev_table, table_size
from knft.render.names import CLIENTS, TABLE, is_ids_map
from tests.bench.cluster import AFFINITY_SECONDS, TARGET_PORT, ServiceSpec, endpoint_address
from tests.bench.manifests import changes
from tests.bench.measure import kernel_kib
from tests.bench.timed_knft import ElementCounter, SyncTimes, TimedKnft
from tests.support.lab.namespace import Namespace
from tests.support.privilege import PrivilegeError, ensure_namespaces

SIZES = (251, 1021, 4093, 16381, 65521)
"""Sizes of tables to choose from; those that knft uses are bold in the output."""
HASHED_BYTES = {"IPv4": (4,), "IPv4 and port": (4, 2), "IPv6": (16,), "IPv6 and port": (16, 2)}
"""What is hashed of a client, as sizes of its address and port; all columns but p are of the first."""
REMOVALS = 12
"""Of how many endpoints the removal is measured, one at a time, and how many are added."""
LEAST_P = 0.01
ENDPOINTS_OF_MEMORY = 10
SETTLE_SECONDS = 10.0
_FIRST_CLIENT = int(IPv4Address("172.16.0.0"))


def main() -> None:
    """Measure, and print the tables."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.hashing", description=__doc__)
    parser.add_argument("--endpoints", type=int, nargs="+", default=[3, 10, 100, 600])
    parser.add_argument("--clients", type=int, default=100_000, help="random clients that are hashed")
    parser.add_argument("--changes", type=int, default=20, help="how often an endpoint goes and comes")
    parser.add_argument("--services", type=int, default=100, help="Services of each kind for the table of memory")
    parser.add_argument(
        "--affinity-clients", type=int, default=1000, help="clients of each Service with ClientIP affinity"
    )
    parser.add_argument("--rounds", type=int, default=3, help="how often memory is measured; the median counts")
    arguments = parser.parse_args()
    try:
        ensure_namespaces()
    except PrivilegeError as error:
        sys.exit(f"bench: {error}")
    print("load:", *os.getloadavg())
    _print_shares(arguments.endpoints, arguments.clients)
    _print_changes(arguments.endpoints, arguments.changes)
    _print_memory(arguments.services, arguments.affinity_clients, arguments.rounds)
    print("load:", *os.getloadavg())


def _print_table(title: str, columns: Sequence[str], rows: Iterator[Sequence[str]]) -> None:
    print(f"\n{title}\n\n| {' | '.join(columns)} |\n|{' --- |' * len(columns)}")
    for row in rows:
        print(f"| {' | '.join(row)} |", flush=True)


# Shares, and clients that move.


class Shares(Struct, frozen=True):
    """How a table spreads clients: shares of slots as multiples of 1/n, and the clients that move, as shares of all."""

    least: float
    greatest: float
    chi_squared: float
    moved_if_one_goes: float
    moved_if_one_comes: float
    cpu_seconds: float
    """To compute the table once, in Python."""


def _print_shares(counts: Sequence[int], clients: int) -> None:
    rng = Random(1)  # noqa: S311 - reproducible
    hashes = {name: [_client_hash(rng, sizes) for _ in range(clients)] for name, sizes in HASHED_BYTES.items()}
    columns = [
        *("endpoints n", "slots", "share of the slots, least and greatest, times n", f"χ² of {clients} clients"),
        f"p: {', '.join(HASHED_BYTES)}",
        *("1/n", "clients that move if one goes", "1/(n+1)", "if one comes", "CPU, ms"),
    ]

    def rows() -> Iterator[Sequence[str]]:
        for count, size in itertools.product(counts, SIZES):
            if size >= count:
                found = {name: shares(count, size, values) for name, values in hashes.items()}
                first = found[next(iter(found))]
                yield (
                    str(count),
                    f"**{size}**" if size == table_size(count) else str(size),
                    f"{first.least:.3f}, {first.greatest:.3f}",
                    f"{first.chi_squared:.0f}",
                    ", ".join(_p_text(chi_squared_p(each.chi_squared, count - 1)) for each in found.values()),
                    _percent(1 / count),
                    _percent(first.moved_if_one_goes),
                    _percent(1 / (count + 1)),
                    _percent(first.moved_if_one_comes),
                    f"{first.cpu_seconds * 1e3:.2g}",
                )

    _print_table("Shares and moved clients:", columns, rows())


def _p_text(probability: float) -> str:
    return f"{probability:.2f}" if probability >= LEAST_P else f"< {LEAST_P}"


def _percent(share: float) -> str:
    return f"{share * 100:.2f} %"


def _client_hash(rng: Random, sizes: Sequence[int]) -> float:
    """Return the hash of a client with random values of these sizes, between 0 and 1."""
    modulus = 1 << 32
    return hash_slot([(rng.getrandbits(8 * size), size) for size in sizes], modulus, SEED) / modulus


def shares(count: int, size: int, hashes: Sequence[float]) -> Shares:
    """Measure a table for ``count`` random endpoints."""
    rng = Random(count)  # noqa: S311 - reproducible
    numbers = rng.sample(range(1 << 20), count + REMOVALS)
    targets, others = _targets(numbers[:count]), _targets(numbers[count:])
    clients = Counter(int(value * size) for value in hashes)
    started = time.process_time()
    table = maglev_table(targets, size)
    cpu_seconds = time.process_time() - started

    def moved(changed: Sequence[Target]) -> float:
        after = maglev_table(changed, size)
        return sum(clients[slot] for slot in range(size) if table[slot] != after[slot]) / len(hashes)

    slots, served = Counter(table), Counter[Target]()
    for slot, number in clients.items():
        served[table[slot]] += number
    equal = len(hashes) / count
    return Shares(
        least=min(slots[target] for target in targets) * count / size,
        greatest=max(slots.values()) * count / size,
        chi_squared=sum((served[target] - equal) ** 2 for target in targets) / equal,
        moved_if_one_goes=fmean(moved([each for each in targets if each != gone]) for gone in targets[:REMOVALS]),
        moved_if_one_comes=fmean(moved([*targets, new]) for new in others),
        cpu_seconds=cpu_seconds,
    )


def _targets(numbers: Sequence[int]) -> list[Target]:
    return [(endpoint_address(number), TARGET_PORT) for number in numbers]


def chi_squared_p(value: float, freedom: int) -> float:
    """Return the probability of a larger χ² (the approximation of Wilson and Hilferty)."""
    variance = 2 / (9 * freedom)
    return 1 - NormalDist().cdf(((value / freedom) ** (1 / 3) - 1 + variance) / math.sqrt(variance))


# Changes on the kernel.


class Change(Struct, frozen=True):
    """One sync for a changed endpoint: elements removed and added, bytes sent to libnftables, and times."""

    elements: int
    size: int
    times: SyncTimes


class OneService:
    """knft with one Service, in a namespace of its own."""

    def __init__(self, namespace: Namespace, service: ServiceSpec) -> None:
        self._namespace, self._service = namespace, service
        self._counter = ElementCounter()
        with namespace.entered():
            self._knft = TimedKnft(observers=(self._counter,))
            self._knft.sync([])
            empty = self._counter.elements
            self._knft.sync(list(changes(((None, service),))))
        self.elements = self._counter.elements - empty

    def change(self, endpoints: tuple[int, ...]) -> Change:
        """Replace the endpoints, and sync."""
        before, self._service = self._service, structs.replace(self._service, endpoints=endpoints)
        elements, size = self._counter.elements, self._knft.libnftables.sent_bytes
        with self._namespace.entered():
            times = self._knft.sync(list(changes(((before, self._service),))))
        return Change(self._counter.elements - elements, self._knft.libnftables.sent_bytes - size, times)

    def close(self) -> None:
        """End libnftables' process."""
        self._knft.close()


@contextmanager
def _one_service(service: ServiceSpec) -> Iterator[OneService]:
    with closing(Namespace.create("hashing")) as namespace, closing(OneService(namespace, service)) as knft:
        yield knft


def _print_changes(counts: Sequence[int], repetitions: int) -> None:
    columns = [
        *("endpoints n", "change", "elements of the Service", "elements removed and added", "bytes", "CPU, ms"),
        *("CPU, relative", "time, relative"),
    ]

    def rows() -> Iterator[Sequence[str]]:
        for count in counts:
            endpoints = tuple(range(count))
            with (
                _one_service(ServiceSpec(0, endpoints)) as plain,
                _one_service(ServiceSpec(0, endpoints, load_balancing="source-hash")) as hashed,
            ):
                found = [_changes_in_turn((plain, hashed), endpoints, number) for number in range(repetitions)]
            for index, name in enumerate(("one goes", "one comes")):
                pairs = [each[index] for each in found]
                yield (
                    str(count),
                    name,
                    f"{plain.elements}, {hashed.elements}",
                    _medians(pairs, lambda change: change.elements),
                    _medians(pairs, lambda change: change.size),
                    _medians(pairs, lambda change: change.times.cpu * 1e3, ".1f"),
                    _ratio(pairs, lambda change: change.times.cpu),
                    _ratio(pairs, lambda change: change.times.seconds),
                )

    _print_table("Changes (random, source-hash):", columns, rows())


Pair = tuple[Change, Change]


def _changes_in_turn(
    services: tuple[OneService, OneService], endpoints: tuple[int, ...], number: int
) -> tuple[Pair, Pair]:
    """Let an endpoint go, and come back, in both; return the two changes of each kind."""
    left = tuple(each for each in endpoints if each != endpoints[number % len(endpoints)])
    plain, hashed = services
    return (plain.change(left), hashed.change(left)), (plain.change(endpoints), hashed.change(endpoints))


def _medians(pairs: Sequence[Pair], value: Callable[[Change], float], form: str = ".0f") -> str:
    return ", ".join(f"{median(map(value, each)):{form}}" for each in zip(*pairs, strict=True))


def _ratio(pairs: Sequence[Pair], value: Callable[[Change], float]) -> str:
    plain, hashed = (median(map(value, each)) for each in zip(*pairs, strict=True))
    return f"{hashed / plain:.1f}"


# Memory of the kernel.


def _print_memory(services: int, clients: int, rounds: int) -> None:
    columns = ["Services with", "elements of each", "memory of the kernel for each Service, KiB"]

    def rows() -> Iterator[Sequence[str]]:
        # In turn, because the memory of other programs changes meanwhile.
        for results in zip(*(list(_memory(services, clients)) for _ in range(rounds)), strict=True):
            name, elements, _ = results[0]
            yield name, f"{elements / services:.1f}", f"{median(kib for *_, kib in results) / services:.1f}"

    title = f"Memory, {services} Services with {ENDPOINTS_OF_MEMORY} endpoints, median of {rounds}:"
    _print_table(title, columns, rows())


def _memory(services: int, clients: int) -> Iterator[tuple[str, int, int]]:
    """Yield a name, the number of elements, and their memory in KiB, for each kind of Service."""
    for name, load_balancing, affinity_seconds in (
        ("`random`", "", 0),
        ("`source-hash`", "source-hash", 0),
        ("ClientIP affinity, without clients", "", AFFINITY_SECONDS),
    ):
        specs = [_spec(number, load_balancing, affinity_seconds) for number in range(services)]
        with (
            closing(Namespace.create("hashing")) as namespace,
            namespace.entered(),
            closing(TimedKnft(observers=(counter := ElementCounter(),))) as knft,
        ):
            knft.sync([])
            empty, before = counter.elements, kernel_kib(SETTLE_SECONDS)
            knft.sync([change for spec in specs for change in changes(((None, spec),))])
            elements = counter.elements - empty
            yield name, elements, kernel_kib(SETTLE_SECONDS) - before
            if affinity_seconds:
                elements += _add_clients(knft, clients)
                yield f"ClientIP affinity, {clients} clients for each", elements, kernel_kib(SETTLE_SECONDS) - before


def _spec(number: int, load_balancing: str, affinity_seconds: int) -> ServiceSpec:
    first = number * ENDPOINTS_OF_MEMORY
    endpoints = tuple(range(first, first + ENDPOINTS_OF_MEMORY))
    return ServiceSpec(number, endpoints, affinity_seconds, load_balancing=load_balancing)


def _add_clients(knft: TimedKnft, clients: int) -> int:
    """Add clients of each Service with ClientIP affinity; return how many elements the set then has."""
    table, rng = KernelTable(knft.libnftables, Family.IPV4, TABLE), Random(1)  # noqa: S311 - reproducible
    listing = knft.proxier.read_table()
    assert listing is not None
    arrays = [ids for name, ids in listing.contents.arrays.items() if is_ids_map(name.container)]
    addresses = map(IPv4Address, itertools.count(_FIRST_CLIENT))
    for ids in arrays:
        elements = ", ".join(
            f"{address} . {rng.choice(ids)} timeout {AFFINITY_SECONDS}s"
            for address in itertools.islice(addresses, clients)
        )
        knft.libnftables.run(f"add element {Family.IPV4.nft} {TABLE} {CLIENTS} {{ {elements} }}")
    added = len(table.dynamic_elements()[CLIENTS])
    if added != clients * len(arrays):
        sys.exit(f"bench: the set has {added} of {clients * len(arrays)} clients")
    return added


if __name__ == "__main__":
    main()
