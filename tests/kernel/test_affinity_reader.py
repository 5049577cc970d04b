"""Affinity entries, as knft counts them and as nft lists them."""

import json
import random
import tracemalloc
from collections import Counter
from collections.abc import Collection
from typing import Any

import pytest

from knft.errors import KernelError
from knft.families import Family
from knft.kernel.affinity_reader import client_seconds, count_clients
from knft.kernel.process import WorkerProcess
from knft.nft.codec.tables import declarations_text
from knft.render import layout
from knft.render.names import CLIENTS, TABLE
from tests.kernel.test_counter_reader import counted_steps
from tests.support.lab.namespace import Namespace
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kernel
IDS = (0x11171, 7, 0xFFFFFFFE)
TIMEOUT = 10800
CLIENT_ADDRESS = {Family.IPV4: "192.0.2.7", Family.IPV6: "2001:db8::7"}


def _declare(library: WorkerProcess, family: Family) -> None:
    library.run(declarations_text(layout.declarations(family)))


def _add(library: WorkerProcess, family: Family, *elements: str) -> None:
    library.run(f"add element {family.nft} {TABLE} {CLIENTS} {{ {', '.join(elements)} }}")


def _many(family: Family, count: int, timeout: str = f"timeout {TIMEOUT}s") -> list[str]:
    rng = random.Random(1)  # noqa: S311 - the elements are the same in each run
    address = "10.{}.{}.{}" if family is Family.IPV4 else "fd00:{:x}:{:x}::{:x}"
    return [
        f"{address.format(number >> 16, number >> 8 & 0xFF, number & 0xFF)} . {rng.choice(IDS)} {timeout}"
        for number in range(count)
    ]


def _listed(namespace: Namespace, family: Family) -> Counter[int]:
    listing = json.loads(namespace.run(["nft", "-j", "list", "set", family.nft, TABLE, CLIENTS]).stdout)
    (found,) = (each["set"] for each in listing["nftables"] if "set" in each)
    return Counter(_id(each) for each in found["elem"])


def _id(element: dict[str, Any]) -> int:
    key = element["elem"]["val"] if "elem" in element else element
    major, _, minor = key["concat"][1].partition(":")
    return int(major, 16) << 16 | int(minor, 16)


@pytest.mark.parametrize("family", Family)
def test_clients_are_counted_by_endpoint(namespace: Namespace, library: WorkerProcess, family: Family) -> None:
    """Also those without a timeout, which other programs can add: then a list has elements of several forms."""
    _declare(library, family)
    _add(library, family, *_many(family, 3000))
    listed = _wait_for_counts(namespace, family)
    assert _count(family, IDS[:1]) == ({IDS[0]: listed[IDS[0]]}, True)
    assert _count(family, ()) == ({}, True)

    _add(library, family, *_many(family, 3500, "")[3000:])
    _wait_for_counts(namespace, family)


def test_equal_forms_are_decoded_together(library: WorkerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    _declare(library, Family.IPV4)
    _add(library, Family.IPV4, *_many(Family.IPV4, 3000))
    steps = counted_steps(monkeypatch)
    counts, _ = _count(Family.IPV4, IDS)
    assert len(steps) < sum(counts.values())


def _wait_for_counts(namespace: Namespace, family: Family) -> Counter[int]:
    """Wait until the entries are counted as nft lists them, and return their numbers.

    The kernel resizes the hash table shortly after many were added. Both may have some entries twice meanwhile.
    """
    wait_until(lambda: _count(family, IDS) == (_listed(namespace, family), True), "the counts are not those of nft")
    return _listed(namespace, family)


def _wait_for_sum(size: int) -> None:
    """Wait until so many IPv4 entries are counted: while the kernel resizes the table, some are missing."""
    wait_until(lambda: sum(_count(Family.IPV4, IDS)[0].values()) == size, "entries are missing")


def _count(family: Family, ids: Collection[int]) -> tuple[dict[int, int], bool]:
    found = count_clients(family.number, TABLE, CLIENTS, ids)
    return found.counts, found.is_complete


@pytest.mark.parametrize("family", Family)
def test_entries_of_a_client_have_the_time_that_is_left(library: WorkerProcess, family: Family) -> None:
    _declare(library, family)
    client = CLIENT_ADDRESS[family]
    _add(library, family, *_many(family, 600))
    _add(library, family, f"{client} . 7 timeout {TIMEOUT}s expires 1000s", f"{client} . 8 timeout {TIMEOUT}s")
    where = (family.number, TABLE, CLIENTS)
    found = client_seconds(*where, IDS, client)
    assert found.keys() == {7}
    assert 900 < found[7] <= 1000
    assert client_seconds(*where, [8, *IDS], client).keys() == {7, 8}
    assert client_seconds(*where, IDS, client.replace("7", "9")) == {}
    # Another program can add one without a timeout.
    _add(library, family, f"{client} . 9")
    assert client_seconds(*where, [7, 9], client).keys() == {7}


def test_memory_and_time_are_limited(library: WorkerProcess) -> None:
    """Memory does not depend on the number of clients, and the kernel is asked for no more entries than the maximum."""
    _declare(library, Family.IPV4)
    where = (Family.IPV4.number, TABLE, CLIENTS)
    peaks, added = list[int](), 0
    elements = _many(Family.IPV4, 40_000)
    for part in (elements[:2000], elements[2000:]):
        _add(library, Family.IPV4, *part)
        added += len(part)
        _wait_for_sum(added)
        tracemalloc.start()
        counts = count_clients(*where, IDS).counts
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert sum(counts.values()) == len(elements)
    assert peaks[1] < 2 * peaks[0]
    some = count_clients(*where, IDS, max_entries=5000)
    assert not some.is_complete
    assert 5000 <= sum(some.counts.values()) < 6000


def test_missing_set_is_an_error(namespace: Namespace) -> None:
    del namespace
    where = (Family.IPV4.number, "other", CLIENTS)
    with pytest.raises(KernelError, match=r"cannot read the elements of 'affinity-clients': No such file"):
        count_clients(*where, IDS)
