"""Tests that the observers' work per sync, in interpreter steps, does not depend on the cluster's size."""

from typing import Any

import pytest

from knft.sync.observer import SyncObserver
from tests.serve.node import MonitoredNode, load_balancer_service
from tests.support.bytecode_steps import count_bytecode_steps
from tests.support.kernel_harness import slices
from tests.support.lab.namespace import Namespace

pytestmark = pytest.mark.kernel
FEW, MANY = 5, 300


def test_history_is_the_last_observer(namespace: Namespace) -> None:
    """The deletion of stale conntrack entries does not wait for what only a person reads."""
    monitoring, cleaner = MonitoredNode(namespace).monitoring, SyncObserver()
    assert monitoring.observers_with(cleaner)[-2:] == (cleaner, monitoring.history)


def _node_with_services(namespace: Namespace, count: int) -> MonitoredNode:
    """Return a node with ``count`` Services with policy Local and a health check port, which observers track."""
    node = MonitoredNode(namespace)
    for number in range(1, count + 1):
        node.apply(
            load_balancer_service(f"s{number}", 20_000 + number, number), *slices(f"s{number}", (1, 2, 3), local=(1,))
        )
    assert node.daemon.sync()
    return node


def _observer_steps(node: MonitoredNode, changed: list[dict[str, Any]]) -> int:
    """Return the number of interpreter steps that the observers take for a change and its sync."""
    observers = node.monitoring.observers_with()
    node.apply(*changed)
    total = 0
    for family, proxier in node.proxiers.items():
        report = proxier.sync()

        def observe(family: Any = family, report: Any = report, state: Any = proxier.state) -> None:
            for observer in observers:
                observer.sync_queued(family)
                observer.sync_succeeded(report, state)

        total += count_bytecode_steps(observe)
    return total


def test_observer_cost_does_not_depend_on_cluster_size(namespace: Namespace) -> None:
    """A change of one Service takes equally many steps among few and among many Services."""
    steps = []
    for count in (FEW, MANY):
        node = _node_with_services(namespace, count)
        _observer_steps(node, slices("s5", (1, 2), local=(1, 2)))  # Warm up.
        steps.append(_observer_steps(node, slices("s5", (1, 2, 3), local=(3,))))
    few, many = steps
    assert many < few * 1.05
