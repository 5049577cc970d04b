"""What tests of metrics have in common: a mark that they move some, and words for values."""

import functools
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from knft.families import Family
from tests.serve.node import MonitoredNode
from tests.support.kernel_harness import slices

RULES = "kubeproxy_sync_proxy_rules_"

CHANGED_METRICS: set[str] = set()
"""What tests of the modules that are loaded so far are to move."""

Move = Callable[[MonitoredNode], None]


def _of(series: dict[str, float], name: str) -> dict[str, float]:
    """Return the series of one metric."""
    ends = ("", "_bucket", "_count", "_sum") if name.endswith("_seconds") else ("",)
    return {key: value for key, value in series.items() if key.partition("{")[0] in {name + end for end in ends}}


def changes_metrics(*names: str) -> Callable[[Move], Move]:
    """Mark a test that moves these metrics; that they have other values after it is held here."""
    CHANGED_METRICS.update(names)

    def decorate(test: Move) -> Move:
        @functools.wraps(test)
        def checked(node: MonitoredNode) -> None:
            before = {**node.scrape(), **node.scrape("/metrics/slis")}
            test(node)
            after = {**node.scrape(), **node.scrape("/metrics/slis")}
            for name in names:
                assert _of(after, name) != _of(before, name), f"{name} has not moved"

        return checked

    return decorate


def value(node: MonitoredNode, name: str, family: Family | None = None, **labels: str) -> float:
    """Return a series' value."""
    known = ({"ip_family": family.value} if family is not None else {}) | labels
    text = ",".join(f'{label}="{known[label]}"' for label in sorted(known))
    return node.scrape()[f"{name}{{{text}}}" if text else name]


def slices_changed_ago(node: MonitoredNode, name: str, numbers: list[int], ago: float) -> list[dict[str, Any]]:
    """Return the slices of a Service, changed so many seconds ago."""
    moment = datetime.fromtimestamp(node.clock.seconds - ago, UTC).isoformat().replace("+00:00", "Z")
    made = slices(name, numbers)
    for each in made:
        each["metadata"]["annotations"] = {"endpoints.kubernetes.io/last-change-trigger-time": moment}
    return made
