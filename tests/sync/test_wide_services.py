"""The cost of a Service with many frontends, and of an unrelated change beside it (docs/design/wide-layout.md)."""

from typing import Any

import pytest

from knft.families import Family
from knft.nft.objects import Contents
from tests.support.bytecode_steps import count_bytecode_steps
from tests.support.kernel_harness import KernelHarness, element_operations, service, slices

pytestmark = pytest.mark.kernel

PORTS, ADDRESSES, ENDPOINTS = 100, 50, 200
"""Of the Service of 8 KB that stopped a node: 1 020 000 elements if each frontend has a copy of the endpoints."""


def _wide_service(**spec: Any) -> dict[str, Any]:
    addresses = [address for n in range(1, ADDRESSES + 1) for address in (f"203.0.113.{n}", f"2001:db8:cb::{n}")]
    ports = [{"name": f"p{n}", "port": 1000 + n} for n in range(PORTS)]
    return service("wide", 2500, externalIPs=addresses, **spec, ports=ports)


def _wide_slices(count: int = ENDPOINTS) -> list[dict[str, Any]]:
    ports = [{"name": f"p{n}", "port": 8000 + n} for n in range(PORTS)]
    return [item | {"ports": ports} for item in slices("wide", range(1, count + 1))]


def _element_count(contents: Contents) -> int:
    arrays = sum(len(array) for array in contents.arrays.values())
    return len(contents.entries) + len(contents.members) + arrays


def test_cost_of_a_wide_service_is_a_sum(harness: KernelHarness) -> None:
    """In the kernel there are elements for each frontend and each endpoint, and two chains for each port."""
    harness.apply(_wide_service(), *_wide_slices())
    harness.sync()
    for family in Family:
        listing = harness.listing(family)
        assert _element_count(listing.contents) < PORTS * (ADDRESSES + 1 + ENDPOINTS) + 10
        assert sum(name.startswith("wide-") for name in listing.rule_counts) == 2 * PORTS


def test_changed_endpoint_of_a_wide_service_changes_three_elements_for_each_port(harness: KernelHarness) -> None:
    harness.apply(_wide_service(), *_wide_slices())
    harness.sync()
    harness.apply(*_wide_slices(ENDPOINTS - 1))
    harness.sync()
    for family in Family:
        sent = harness.last_transaction(family)
        assert element_operations(sent) <= 3 * PORTS
        assert len(sent.chains) == PORTS


def test_unrelated_change_costs_the_same_beside_a_wide_service(harness: KernelHarness) -> None:
    """Counts the bytecode instructions from the event to the commit."""
    alone = _instructions(harness)
    other = KernelHarness(harness.namespace)
    other.apply(_wide_service(), *_wide_slices())
    other.sync()
    assert _instructions(other) < alone * 1.05


def _instructions(harness: KernelHarness) -> int:
    harness.apply(service("web", 5), *slices("web", (1, 2, 3)))
    for endpoints in ((1, 2, 4), (1, 2, 3)):  # Warms up caches.
        harness.apply(*slices("web", endpoints))
        harness.sync()

    def work() -> None:
        harness.apply(*slices("web", (1, 2, 4)))
        harness.sync()

    return count_bytecode_steps(work)


VARIANTS: dict[str, dict[str, Any]] = {
    "external policy Local": {"type": "LoadBalancer", "externalTrafficPolicy": "Local"},
    "sticky": {"sessionAffinity": "ClientIP"},
    "source ranges": {
        "type": "LoadBalancer",
        "loadBalancerSourceRanges": [f"10.{n}.0.0/16" for n in range(50)] + [f"fd00:{n}::/32" for n in range(50)],
    },
}


@pytest.mark.parametrize("spec", VARIANTS.values(), ids=list(VARIANTS))
def test_restart_beside_a_wide_service_sends_nothing(harness: KernelHarness, spec: dict[str, Any]) -> None:
    """Numbers and rules are the same in a new process."""
    ingress = [{"ip": address} for n in range(1, 31) for address in (f"203.0.114.{n}", f"2001:db8:cc::{n}")]
    item = _wide_service(**spec) | {"status": {"loadBalancer": {"ingress": ingress}}}
    item["spec"]["ports"] = item["spec"]["ports"][:3]
    harness.apply(item, *_wide_slices(20))
    harness.sync()
    restarted = KernelHarness(harness.namespace)
    restarted.change((kind, name, found) for (kind, name), found in harness.objects.items())
    restarted.sync()
    for family in Family:
        assert any(name.startswith("wide-") for name in restarted.listing(family).rule_counts)
        assert restarted.last_transaction(family).is_empty
