"""What knft's own metrics say."""

import math
from collections.abc import Mapping

import urllib3
from prometheus_client.parser import text_string_to_metric_families

from tests.support.lab.namespace import Namespace

_LATENCY = "kubeproxy_network_programming_duration_seconds"
_SYNCS = "kubeproxy_sync_proxy_rules_duration_seconds_count"


class Histogram:
    """Network programming latencies in buckets, IPv4's, and how many syncs there were."""

    def __init__(self, buckets: Mapping[float, float], syncs: float) -> None:
        """Take the counts of all that is no longer than each bound."""
        self.buckets = dict(buckets)
        self.syncs = syncs

    def since(self, before: "Histogram") -> "Histogram":
        """Return what came after another one."""
        counts = {bound: count - before.buckets.get(bound, 0) for bound, count in self.buckets.items()}
        return Histogram(counts, self.syncs - before.syncs)

    @property
    def count(self) -> float:
        """How many there are."""
        return max(self.buckets.values(), default=0.0)

    def quantile(self, share: float) -> float:
        """Return a quantile in seconds, as dashboards do: evenly between the bounds of its bucket."""
        wanted, low, below = share * self.count, 0.0, 0.0
        for bound, count in sorted(self.buckets.items()):
            if count >= wanted and count > below:
                return low if math.isinf(bound) else low + (bound - low) * (wanted - below) / (count - below)
            low, below = bound, count
        return math.nan


def scrape_histogram(namespace: Namespace) -> Histogram:
    """Ask knft in a namespace."""
    with namespace.entered():
        said = urllib3.request("GET", "http://127.0.0.1:10249/metrics", timeout=10.0, retries=False).data.decode()
    samples = [sample for family in text_string_to_metric_families(said) for sample in family.samples]
    own = [sample for sample in samples if sample.labels.get("ip_family") == "IPv4"]
    buckets = {float(sample.labels["le"]): sample.value for sample in own if sample.name == f"{_LATENCY}_bucket"}
    return Histogram(buckets, sum(sample.value for sample in own if sample.name == _SYNCS))
