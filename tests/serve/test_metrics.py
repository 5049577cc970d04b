"""All metrics are there as they are listed, and no other; and each is made to move by a test of another module."""

import importlib
import re
from pathlib import Path

import pytest

from knft.model.names import Family
from tests.kernel.harness import service
from tests.kernel.poison import refusing
from tests.serve.listed import ABSENT, GATE, INDICATORS, OTHER_MODE, OWN, PROCESS, UPSTREAM, Expected
from tests.serve.moving import MOVED, timed
from tests.serve.node import HEALTH, METRICS, ServedNode

pytestmark = pytest.mark.kernel
V4 = Family.IPV4
MOVING = ("syncs", "objects", "others")


_SERIES = re.compile(r"(\w+)(?:\{(.*)\})?")
_LABEL = re.compile(r'(\w+)="([^"]*)"')


def _everything(node: ServedNode) -> None:
    """Give every metric with labels a value."""
    node.ports[V4].meddle = refusing("10.96.0.77")
    node.synced(service("web"), *timed(node, "web", [1], 1))
    node.synced(service("web", 11))
    node.ports[V4].refuse = node.ports[V4].refuse_reads = 1000
    node.apply(service("more", 20))
    node.daemon.sync()
    node.ports[V4].heal()
    node.synced(service("gone", 77))
    node.delete("Service", "gone")
    node.ports[V4].meddle = refusing("10.96.0.77")
    node.synced()
    node.get(HEALTH, "/healthz")
    node.get(HEALTH, "/livez")
    node.get(METRICS, "/healthz")
    node.serving.metrics.conntrack_reconciled(V4, 0.1, 1)
    node.serving.metrics.api_request("200", "GET", "host:6443", 0.1)


def _described(text: str) -> dict[str, Expected]:
    """Return what a scrape says of its metrics: type, labels, and the bounds of buckets in their order."""
    types = dict(line.split()[2:4] for line in text.splitlines() if line.startswith("# TYPE"))
    labels: dict[str, set[str]] = {name: set() for name in types}
    bounds: dict[str, dict[frozenset[tuple[str, str]], list[str]]] = {name: {} for name in types}
    for line in text.splitlines():
        matched = _SERIES.match(line)
        if line.startswith("#") or matched is None:
            continue
        name = next(name for name in types if matched[1] in (name, f"{name}_bucket", f"{name}_count", f"{name}_sum"))
        found = dict(_LABEL.findall(matched[2] or ""))
        bound = found.pop("le", None)
        labels[name] |= found.keys()
        if bound is not None:
            bounds[name].setdefault(frozenset(found.items()), []).append(bound)
    assert all(len(set(map(tuple, each.values()))) <= 1 for each in bounds.values())
    buckets = {name: next(iter(each.values()), []) for name, each in bounds.items()}
    return {name: Expected(types[name], tuple(sorted(labels[name])), tuple(buckets[name])) for name in types}


def test_every_metric_is_there_as_it_is_listed_and_no_other(node: ServedNode) -> None:
    _everything(node)
    found = _described(node.get(METRICS, "/metrics").body.decode())
    assert found.keys() & PROCESS == PROCESS
    assert {name: known for name, known in found.items() if name not in PROCESS} == UPSTREAM | OWN
    assert _described(node.get(METRICS, "/metrics/slis").body.decode()) == INDICATORS


def test_what_is_left_out_on_purpose_is_not_there(node: ServedNode) -> None:
    _everything(node)
    names = {key.partition("{")[0] for key in node.scrape()}
    assert names.isdisjoint(ABSENT)
    assert not [name for name in names if name.startswith("go_") or name.endswith("_created")]
    assert all(ABSENT.values())


def test_every_metric_has_help_of_one_line(node: ServedNode) -> None:
    text = node.get(METRICS, "/metrics").body.decode()
    helped = {line.split()[2] for line in text.splitlines() if line.startswith("# HELP") and len(line.split()) > 4}
    assert helped >= UPSTREAM.keys() | OWN.keys()


def test_every_listed_metric_is_made_to_move() -> None:
    """The versions at work alone cannot."""
    for name in MOVING:
        importlib.import_module(f"tests.serve.test_metrics_of_{name}")
    assert {*UPSTREAM, *OWN, *INDICATORS} - {"knft_build_info"} == MOVED - PROCESS


def test_the_readme_tells_of_knfts_own_metrics_and_of_those_that_are_not_there() -> None:
    told = (Path(__file__).parents[2] / "README.md").read_text()
    assert [name for name in OWN if f"`{name}" not in told] == []
    general = {OTHER_MODE: "*_iptables_*", GATE: "nftables_localhost_nodeport_*", ABSENT["go_goroutines"]: "go_*"}
    assert [name for name, reason in ABSENT.items() if f"`{general.get(reason, name)}`" not in told] == []


def test_series_with_labels_are_there_from_their_first_value_on(node: ServedNode) -> None:
    """As in kube-proxy: an alert on a rate must not see a restart as a failure."""
    assert not [key for key in node.scrape() if "failures_total{" in key and not key.startswith("knft_health")]
