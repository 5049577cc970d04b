"""Reads the network programming latency from knft's metrics."""

import math
from collections.abc import Mapping

import urllib3
from prometheus_client.parser import text_string_to_metric_families

from tests.support.lab.namespace import Namespace

_LATENCY = "kubeproxy_network_programming_duration_seconds"
_SYNCS = "kubeproxy_sync_proxy_rules_duration_seconds_count"


class Histogram:
    """The buckets of the network programming latency of IPv4, and the number of syncs."""

    def __init__(self, buckets: Mapping[float, float], syncs: float) -> None:
        """Take cumulative counts by upper bound, and the number of syncs."""
        self.buckets = dict(buckets)
        self.syncs = syncs

    def since(self, before: "Histogram") -> "Histogram":
        """Return the difference to an earlier histogram."""
        counts = {bound: count - before.buckets.get(bound, 0) for bound, count in self.buckets.items()}
        return Histogram(counts, self.syncs - before.syncs)

    @property
    def count(self) -> float:
        """The number of samples."""
        return max(self.buckets.values(), default=0.0)

    def quantile(self, share: float) -> float:
        """Return a quantile in seconds, interpolated within its bucket as by histogram_quantile()."""
        rank, low, below = share * self.count, 0.0, 0.0
        for bound, count in sorted(self.buckets.items()):
            if count >= rank and count > below:
                return low if math.isinf(bound) else low + (bound - low) * (rank - below) / (count - below)
            low, below = bound, count
        return math.nan


def scrape_histogram(namespace: Namespace) -> Histogram:
    """Scrape knft in a network namespace."""
    with namespace.entered():
        text = urllib3.request("GET", "http://127.0.0.1:10249/metrics", timeout=10.0, retries=False).data.decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    own = [sample for sample in samples if sample.labels.get("ip_family") == "IPv4"]
    buckets = {float(sample.labels["le"]): sample.value for sample in own if sample.name == f"{_LATENCY}_bucket"}
    return Histogram(buckets, sum(sample.value for sample in own if sample.name == _SYNCS))
