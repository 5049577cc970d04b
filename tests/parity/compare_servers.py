"""Compares the HTTP servers of two proxies: metrics, health, the mode, and health check node ports."""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import urllib3
from prometheus_client.parser import text_string_to_metric_families

from tests.cluster.kube_proxy import HEALTH_PORT, METRICS_PORT, get
from tests.parity import exceptions
from tests.parity.nodes import ParityNode
from tests.parity.random_cluster import Cluster, health_check_port, is_proxied
from tests.support.lab import plan

_PATHS = (
    (HEALTH_PORT, "/healthz"),
    (HEALTH_PORT, "/livez"),
    (METRICS_PORT, "/healthz"),
    (METRICS_PORT, "/proxyMode"),
    (METRICS_PORT, "/no-such-path"),
)
_TIME = re.compile(r'"\d{4}-\d\d-\d\d[T ][^"]*"')
_WEIGHT = "x-load-balancing-endpoint-weight"


class Metric(NamedTuple):
    """The type of a metric, the names of its labels and of its samples, and the bounds of its buckets."""

    type: str
    labels: frozenset[str]
    samples: frozenset[str]
    bounds: frozenset[str]


def compare_metrics(left: ParityNode, right: ParityNode) -> list[str]:
    """Return the metrics that only one side has, or that have other types, labels or buckets."""
    ours, theirs = _metrics(right), _metrics(left)
    missing = [name for name in sorted(theirs.keys() - ours) if not _is_excepted(name, exceptions.ONLY_KUBE_PROXY)]
    added = [name for name in sorted(ours.keys() - theirs) if not _is_excepted(name, exceptions.ONLY_KNFT)]
    return [
        *(f"only {left.name} has {name}" for name in missing),
        *(f"only {right.name} has {name}" for name in added),
        *(
            f"{name}: {theirs[name]} | {right.name}: {ours[name]}"
            for name in sorted(ours.keys() & theirs)
            if ours[name] != theirs[name]
        ),
    ]


def _is_excepted(name: str, patterns: dict[str, str]) -> bool:
    return exceptions.is_excepted(name, patterns)


def _metrics(node: ParityNode) -> dict[str, Metric]:
    text = get(node.namespace, METRICS_PORT, "/metrics").body
    found: dict[str, Metric] = {}
    # A metric without a value has no sample. Go's library then leaves out its name too.
    for family in (item for item in text_string_to_metric_families(text) if item.samples):
        labels = frozenset(name for sample in family.samples for name in sample.labels) - {"le"}
        samples = frozenset(sample.name for sample in family.samples)
        bounds = frozenset(sample.labels["le"] for sample in family.samples if "le" in sample.labels)
        found[family.name] = Metric(family.type, labels, samples, bounds)
    return found


def compare_health(left: ParityNode, right: ParityNode, cluster: Cluster, *, same_mode: bool) -> list[str]:
    """Return the paths and health check node ports with other statuses or bodies; /proxyMode only in the same mode."""
    paths = [(port, path, "127.0.0.1") for port, path in _PATHS if same_mode or path != "/proxyMode"]
    ports = _health_check_ports(cluster)
    addresses = [(port, "/healthz", address) for port in ports for address in (plan.NODE.lan.ipv4, plan.NODE.lan.ipv6)]
    return list(_differences(left, right, [*paths, *addresses]))


def _differences(left: ParityNode, right: ParityNode, requests: Iterable[tuple[int, str, str]]) -> Iterator[str]:
    for port, path, address in requests:
        theirs, ours = (_response(node, port, path, address) for node in (left, right))
        if theirs != ours:
            yield f"{address}:{port}{path}: {left.name} {theirs} | {right.name} {ours}"


def _health_check_ports(cluster: Cluster) -> list[int]:
    """Return the health check node ports of the Services, and one that no Service has any more."""
    services = [service for service in cluster.services if is_proxied(service)]
    return [health_check_port(service) for service in services]


def _response(node: ParityNode, port: int, path: str, address: str) -> Any:
    try:
        found = get(node.namespace, port, path, address)
    except urllib3.exceptions.HTTPError as error:
        return type(error).__name__
    text = _TIME.sub('"TIME"', found.body)
    try:
        body = json.loads(text)
    except ValueError:
        body = text
    return found.status, body, found.headers.get("content-type"), found.headers.get(_WEIGHT)
