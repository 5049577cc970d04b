"""Compares the HTTP servers of two proxies: metrics, health, the mode, and health check node ports."""

import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import urllib3
from prometheus_client.parser import text_string_to_metric_families

from tests.cluster.kube_proxy import HEALTH_PORT, METRICS_PORT, Mode, get
from tests.parity.exceptions import ONLY_KNFT, ONLY_KUBE_PROXY, ExceptionUses
from tests.parity.nodes import KubeProxyNode, ParityNode
from tests.parity.random_cluster import health_check_port
from tests.support.lab import plan

_PATHS = (
    (HEALTH_PORT, "/healthz"),
    (HEALTH_PORT, "/livez"),
    (METRICS_PORT, "/healthz"),
    (METRICS_PORT, "/proxyMode"),
    (METRICS_PORT, "/no-such-path"),
)
_SETTLING_SECONDS = 10.0
"""How long a response may differ: both proxies update their servers after the rules, in other threads."""
_TIME = re.compile(r'"\d{4}-\d\d-\d\d[T ][^"]*"')
_WEIGHT = "x-load-balancing-endpoint-weight"


class Metric(NamedTuple):
    """The type of a metric, the names of its labels and of its samples, and the bounds of its buckets."""

    type: str
    labels: frozenset[str]
    samples: frozenset[str]
    bounds: frozenset[str]


def compare_metrics(left: KubeProxyNode, right: ParityNode, uses: ExceptionUses) -> list[str]:
    """Return the metrics that only one side has, or that have other types, labels or buckets; count the exceptions."""
    return metric_differences(metrics_of(left), metrics_of(right), left.mode, uses)


def metric_differences(
    theirs: Mapping[str, Metric], ours: Mapping[str, Metric], mode: Mode, uses: ExceptionUses
) -> list[str]:
    """Return the differences between the metrics of kube-proxy in a mode and those of knft."""
    missing = [name for name in theirs.keys() - ours if not uses.is_excepted(name, ONLY_KUBE_PROXY, mode)]
    added = [name for name in ours.keys() - theirs if not uses.is_excepted(name, ONLY_KNFT, mode)]
    kube_proxy = f"kube-proxy in mode {mode}"
    return [
        *(f"only {kube_proxy} has the metric {name}" for name in sorted(missing)),
        *(f"only knft has the metric {name}, not {kube_proxy}" for name in sorted(added)),
        *(
            f"metric {name}: {kube_proxy} {theirs[name]} | knft {ours[name]}"
            for name in sorted(ours.keys() & theirs)
            if ours[name] != theirs[name]
        ),
    ]


def metrics_of(node: ParityNode) -> dict[str, Metric]:
    """Return the metrics that have a value, by name; that of a counter ends in ``_total``."""
    text = get(node.namespace, METRICS_PORT, "/metrics").body
    found: dict[str, Metric] = {}
    # A metric without a value has no sample. Go's library then leaves out its name too.
    for family in (item for item in text_string_to_metric_families(text) if item.samples):
        labels = frozenset(name for sample in family.samples for name in sample.labels) - {"le"}
        samples = frozenset(sample.name for sample in family.samples)
        bounds = frozenset(sample.labels["le"] for sample in family.samples if "le" in sample.labels)
        name = f"{family.name}_total" if family.type == "counter" else family.name
        found[name] = Metric(family.type, labels, samples, bounds)
    return found


def compare_health(left: KubeProxyNode, right: ParityNode, numbers: Iterable[int]) -> list[str]:
    """Return the paths and health check node ports with other statuses or bodies; /proxyMode in mode nftables only.

    ``numbers`` are those of the Services, and of Services that have been deleted: their ports must be closed.
    """
    same_mode = left.mode == "nftables"
    paths = [(port, path, "127.0.0.1") for port, path in _PATHS if same_mode or path != "/proxyMode"]
    ports = [health_check_port(number) for number in numbers]
    addresses = [(port, "/healthz", address) for port in ports for address in (plan.NODE.lan.ipv4, plan.NODE.lan.ipv6)]
    return list(_differences(left, right, [*paths, *addresses]))


def _differences(left: ParityNode, right: ParityNode, requests: Iterable[tuple[int, str, str]]) -> Iterator[str]:
    for port, path, address in requests:
        ends_at = time.monotonic() + _SETTLING_SECONDS
        theirs, ours = _responses(left, right, port, path, address)
        while theirs != ours and time.monotonic() < ends_at:
            time.sleep(0.1)
            theirs, ours = _responses(left, right, port, path, address)
        if theirs != ours:
            yield f"{address}:{port}{path}: {left.name} {theirs} | {right.name} {ours}"


def _responses(left: ParityNode, right: ParityNode, port: int, path: str, address: str) -> tuple[Any, Any]:
    return _response(left, port, path, address), _response(right, port, path, address)


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
