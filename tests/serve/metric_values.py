"""Helpers for tests of metrics: a decorator that checks that a metric changes, and access to values."""

import functools
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from knft.families import Family
from tests.serve.node import MonitoredNode
from tests.support.kernel_harness import slices

RULES = "kubeproxy_sync_proxy_rules_"

CHANGED_METRICS: set[str] = set()
"""The metrics that tests of the modules imported so far must change."""

MetricTest = Callable[[MonitoredNode], None]


def _series_of(series: dict[str, float], name: str) -> dict[str, float]:
    """Return the series of one metric."""
    ends = ("", "_bucket", "_count", "_sum") if name.endswith("_seconds") else ("",)
    return {key: value for key, value in series.items() if key.partition("{")[0] in {name + end for end in ends}}


def changes_metrics(*names: str) -> Callable[[MetricTest], MetricTest]:
    """Decorate a test that must change these metrics, and check that it does."""
    CHANGED_METRICS.update(names)

    def decorate(test: MetricTest) -> MetricTest:
        @functools.wraps(test)
        def checked(node: MonitoredNode) -> None:
            before = {**node.scrape(), **node.scrape("/metrics/slis")}
            test(node)
            after = {**node.scrape(), **node.scrape("/metrics/slis")}
            for name in names:
                assert _series_of(after, name) != _series_of(before, name), f"{name} has not changed"

        return checked

    return decorate


def value(node: MonitoredNode, name: str, family: Family | None = None, **labels: str) -> float:
    """Return the value of one series."""
    all_labels = ({"ip_family": family.value} if family is not None else {}) | labels
    text = ",".join(f'{label}="{all_labels[label]}"' for label in sorted(all_labels))
    return node.scrape()[f"{name}{{{text}}}" if text else name]


def slices_changed_ago(node: MonitoredNode, name: str, numbers: list[int], ago: float) -> list[dict[str, Any]]:
    """Return the slices of a Service with a trigger time ``ago`` seconds in the past."""
    trigger_time = datetime.fromtimestamp(node.clock.seconds - ago, UTC).isoformat().replace("+00:00", "Z")
    made = slices(name, numbers)
    for each in made:
        each["metadata"]["annotations"] = {"endpoints.kubernetes.io/last-change-trigger-time": trigger_time}
    return made
