"""Counters of set elements, as knft reads them and as nft lists them."""

import json
import random
from typing import Any

import pytest

from knft.config import Config
from knft.errors import KernelError
from knft.families import Family
from knft.kernel.counter_reader import _add_list, read_counters
from knft.kernel.process import WorkerProcess
from knft.kernel.set_element_messages import find_attribute, have_same_form
from knft.kernel.set_reader import SetReader
from knft.nft.codec.tables import declarations_text
from knft.nft.objects import Contents
from knft.render import layout
from knft.render.names import COUNTER_SETS
from tests.support.lab.namespace import Namespace
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kernel
ELEMENTS = 3000
COUNTING = Config("node-1", service_counters=True)


def _listed(namespace: Namespace, family: Family, name: str) -> dict[tuple[Any, ...], int]:
    listing = json.loads(namespace.run(["nft", "-j", "-n", "list", "set", family.nft, "knft", name]).stdout)
    (found,) = (each["set"] for each in listing["nftables"] if "set" in each)
    return {tuple(each["elem"]["val"]["concat"]): each["elem"]["counter"]["packets"] for each in found["elem"]}


def _add_elements(library: WorkerProcess, family: Family, name: str) -> None:
    rng = random.Random(1)  # noqa: S311 - the elements are the same in each run
    address = "10.96.{}.{}" if family is Family.IPV4 else "fd00:{:x}::{:x}"
    elements = (
        f"{address.format(number // 256, number % 256)} . {rng.choice(('tcp', 'udp'))} . {rng.randrange(65536)} "
        f"counter packets {rng.choice((0, rng.randrange(2**63)))} bytes {rng.randrange(2**63)}"
        for number in range(ELEMENTS)
    )
    library.run(f"add element {family.nft} knft {name} {{ {', '.join(elements)} }}")


@pytest.mark.parametrize("family", Family)
def test_counters_are_those_that_nft_lists(namespace: Namespace, library: WorkerProcess, family: Family) -> None:
    library.run(declarations_text(layout.declarations(family, COUNTING)))
    name = "service-connections"
    _add_elements(library, family, name)

    def read() -> dict[str, dict[bytes, int]]:
        return read_counters(family.number, "knft", sorted(COUNTER_SETS))

    # A listing lacks some elements while the kernel moves them to a larger hash table.
    wait_until(lambda: len(read()[name]) == len(_listed(namespace, family, name)) == ELEMENTS, "elements are missing")
    found, listed = read(), _listed(namespace, family, name)
    assert sorted(found[name].values()) == sorted(listed.values())
    by_port = {(raw[-8], int.from_bytes(raw[-4:-2], "big"), packets) for raw, packets in found[name].items()}
    assert by_port == {(protocol, port, packets) for (_, protocol, port), packets in listed.items()}
    assert not any(found[other] for other in COUNTER_SETS - {name})


def test_equal_forms_are_decoded_together(library: WorkerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not each element by itself: that takes ten times as long. Their numbers of packets and bytes differ."""
    library.run(declarations_text(layout.declarations(Family.IPV4, COUNTING)))
    _add_elements(library, Family.IPV4, "service-connections")
    steps = counted_steps(monkeypatch)
    assert len(read_counters(Family.IPV4.number, "knft", ["service-connections"])["service-connections"]) > ELEMENTS / 2
    assert len(steps) < ELEMENTS


def counted_steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets an item for each attribute that is looked for in a set's elements."""
    steps: list[int] = []

    def find(data: bytes, start: int, end: int, wanted: int) -> range:
        steps.append(wanted)
        return find_attribute(data, start, end, wanted)

    monkeypatch.setattr("knft.kernel.set_element_messages.find_attribute", find)
    return steps


@pytest.mark.parametrize(("elements", "is_same"), [(b"a1a2", True), (b"a1b2", False), (b"a1a2a", False)])
def test_elements_have_the_same_form_if_only_variable_bytes_differ(elements: bytes, *, is_same: bool) -> None:
    """Each has two bytes, of which the second one is variable."""
    assert have_same_form(elements, 2, [range(1, 2)]) is is_same
    assert not have_same_form(b"a1a", 2, [range(2)])


def test_missing_set_is_an_error(library: WorkerProcess) -> None:
    library.run(declarations_text(layout.declarations(Family.IPV4)))
    with pytest.raises(KernelError, match=r"cannot read the elements of 'service-connections': No such file"):
        read_counters(Family.IPV4.number, "knft", ["service-connections"])


def test_audit_reads_sets_with_counters(library: WorkerProcess) -> None:
    """The digest of a set does not depend on its counters: otherwise traffic could make each dump differ."""
    library.run(declarations_text(layout.declarations(Family.IPV4, COUNTING)))
    digests = []
    for packets in (1, 2):
        library.run(
            "flush set ip knft service-connections\n"
            f"add element ip knft service-connections {{ 10.96.0.1 . tcp . 80 counter packets {packets} bytes 3 }}"
        )
        reader = SetReader("service-connections")
        library.dump_elements(Family.IPV4.number, "knft", ["service-connections"], reader.receive)
        contents = Contents.empty()
        assert reader.add_to(contents)
        assert contents.members == {("service-connections", ("10.96.0.1", "tcp", 80))}
        digests.append(reader.digest)
    assert digests[0] == digests[1]


def test_elements_of_different_forms_are_decoded() -> None:
    """Another program may add an element with a comment, or with another expression than a counter."""

    def attribute(kind: int, payload: bytes) -> bytes:
        return (
            (len(payload) + 4).to_bytes(2, "little") + kind.to_bytes(2, "little") + payload + bytes(-len(payload) % 4)
        )

    def element(key: bytes, *others: bytes) -> bytes:
        return attribute(1, attribute(1, attribute(1, key)) + b"".join(others))

    def counter(packets: int) -> bytes:
        fields = attribute(1, (100).to_bytes(8, "big")) + attribute(2, packets.to_bytes(8, "big"))
        return attribute(7, attribute(1, b"counter\0") + attribute(2, fields))

    counts: dict[bytes, int] = {}
    _add_list(
        element(b"key1", counter(5)) + element(b"key2", counter(6), attribute(6, b"c")) + element(b"key3"), counts
    )
    assert counts == {b"key1": 5, b"key2": 6}
    _add_list(element(b"key4", counter(7)) + element(b"key5", counter(8)) + attribute(2, b"?"), counts)
    assert counts == {b"key1": 5, b"key2": 6, b"key4": 7, b"key5": 8}
    _add_list(b"", counts)
