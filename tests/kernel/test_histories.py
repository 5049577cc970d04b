"""The law that holds it together: after any history the table equals what a fresh process would render.

Apart from the order within pools, from pool chains that nothing uses, and from the indexes of sticky ports (DESIGN.md
2).
"""

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from knft.model.names import Family
from knft.nft.codec.listing import Listing
from knft.nft.objects import ArrayName, Entry, Key, Target
from knft.render.names import STICKY_PORTS
from tests.kernel.harness import KernelHarness
from tests.kernel.strategies import NAMES, endpoint_slices, nodes, services
from tests.lab.namespace import Namespace

pytestmark = pytest.mark.kernel

STEP = st.one_of(
    services().map(lambda item: ("apply", item)),
    endpoint_slices().map(lambda item: ("apply", item)),
    nodes().map(lambda item: ("apply", item)),
    st.sampled_from(NAMES).map(lambda name: ("delete", ("Service", name))),
    st.integers(1, 4).map(lambda number: ("delete", ("EndpointSlice", f"slice-{number}"))),
    st.just(("sync", None)),
)


def _take(harness: KernelHarness, step: tuple[str, Any]) -> None:
    verb, what = step
    if verb == "apply":
        harness.apply(what)
    elif verb == "delete":
        if what in harness.objects:
            harness.delete(*what)
    else:
        harness.sync()


_Comparable = tuple[dict[tuple[str, Key], Entry], set[tuple[str, Key]], dict[ArrayName, Counter[Target]]]


def _comparable(listing: Listing) -> _Comparable:
    """Return what a table holds, without the order in arrays and without the numbers in notes of sticky ports."""
    entries = {place: _without_numbers(place, entry) for place, entry in listing.contents.entries.items()}
    arrays = {
        name: Counter(target for target in array if target is not None)
        for name, array in listing.contents.arrays.items()
    }
    return entries, listing.contents.members, arrays


def _without_numbers(place: tuple[str, Key], entry: Entry) -> Entry:
    if place[0] != STICKY_PORTS:
        return entry
    name, *_, port = entry.comment.split()
    return Entry(entry.verdict, f"{name} {port}")


@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(steps=st.lists(STEP, min_size=3, max_size=14))
def test_any_history_ends_where_a_fresh_start_does(steps: list[tuple[str, Any]]) -> None:
    """And every transaction on the way is one that the schema knows and the kernel takes."""
    namespaces = [Namespace.create("history"), Namespace.create("fresh")]
    try:
        with namespaces[0].entered():
            lived = KernelHarness(namespaces[0])
            for step in steps:
                _take(lived, step)
            lived.sync()
            found = {family: _comparable(lived.held(family)) for family in Family}
        with namespaces[1].entered():
            fresh = KernelHarness(namespaces[1])
            fresh.change((kind, name, item) for (kind, name), item in lived.objects.items())
            fresh.sync()
            expected = {family: _comparable(fresh.held(family)) for family in Family}
    finally:
        for namespace in namespaces:
            namespace.close()

    assert expected == found
