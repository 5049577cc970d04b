"""The cost of one change (planned Service ports, elements, Python instructions) is independent of the cluster."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

import tests.support.kernel_harness
from knft.families import Family
from tests.support.bytecode_steps import count_bytecode_steps
from tests.support.kernel_harness import KernelHarness, element_operations, service, slices

pytestmark = pytest.mark.kernel

FEW, MANY = 10, 1000
Manifests = list[dict[str, Any]]


@pytest.fixture(autouse=True)
def _without_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the schema validation: it is no part of a sync, and slower than everything else here."""
    monkeypatch.setattr(tests.support.kernel_harness, "check_schema", lambda _document: None)


def _fill(harness: KernelHarness, count: int) -> None:
    for number in range(1, count + 1):
        harness.apply(service(f"s{number}", number), *slices(f"s{number}", (1, 2, 3)))
    harness.sync()


CHANGES: dict[str, Callable[[], Manifests]] = {
    "an endpoint replaced": lambda: slices("s5", (1, 9, 3)),
    "an endpoint added": lambda: slices("s5", (1, 2, 3, 4)),
    "an endpoint removed": lambda: slices("s5", (1, 3)),
    "a Service added": lambda: [service("new", 2000), *slices("new", (1, 2, 3))],
}


@pytest.mark.parametrize("change", CHANGES)
def test_one_change_among_many_services_plans_one_service_port(harness: KernelHarness, change: str) -> None:
    """The table is not listed, and the transaction contains no other frontend."""
    _fill(harness, MANY)
    harness.apply(*CHANGES[change]())
    reports = harness.sync()
    assert {family: report.service_ports for family, report in reports.items()} == dict.fromkeys(Family, 1)
    assert {family: port.reads for family, port in harness.checked_tables.items()} == dict.fromkeys(Family, 1)
    address = "10.96.7.208" if change == "a Service added" else "10.96.0.5"
    sent = harness.last_transaction()
    keys: Iterable[tuple[Any, ...]] = (
        key for part in (sent.removed, sent.added) for elements in part.values() for key in elements
    )
    assert {key[0] for key in keys if isinstance(key[0], str) and key[0].startswith("10.96.")} == {address}


@pytest.mark.parametrize("numbers", [range(1, 1002), range(2, 1001), range(1, 1000)],
                         ids=["added", "the first removed", "the last removed"])  # fmt: skip
def test_scaling_a_service_of_1000_endpoints_touches_three_elements(harness: KernelHarness, numbers: range) -> None:
    """As with ten endpoints. An element that is removed and added again counts once."""
    harness.apply(service("web"), *slices("web", range(1, 1001)))
    harness.sync()
    harness.apply(*slices("web", numbers))
    harness.sync()
    for family in Family:
        sent = harness.last_transaction(family)
        touched = {(name, key) for part in (sent.removed, sent.added) for name, keys in part.items() for key in keys}
        assert len(touched) <= 3
        assert element_operations(sent) <= 5


@pytest.mark.parametrize("change", CHANGES)
def test_instructions_of_one_change_do_not_depend_on_the_number_of_services(
    harness: KernelHarness, change: str
) -> None:
    """Counts the bytecode instructions from the event to the commit."""
    few = _instructions(harness, FEW, change)
    many = _instructions(KernelHarness(harness.namespace), MANY, change)
    # Longer names and numbers, and resized dictionaries, account for 5 %.
    assert many < few * 1.05


def _instructions(harness: KernelHarness, count: int, change: str) -> int:
    _fill(harness, count)
    # Warms up caches and compiled patterns.
    for warming in CHANGES.values():
        harness.apply(*warming())
        harness.sync()
    harness.delete("Service", "new")
    harness.apply(*slices("s5", (1, 2, 3)))
    harness.sync()

    def work() -> None:
        harness.apply(*CHANGES[change]())
        harness.sync()

    return count_bytecode_steps(work)
