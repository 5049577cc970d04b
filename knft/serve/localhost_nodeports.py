"""The metrics of NodePorts on loopback addresses, with kube-proxy's names."""

from collections.abc import Collection, Iterator

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from knft.families import Family
from knft.forwarder.forwarder import Forwarder


class LocalhostNodePortsCollector(Collector):
    """Reads the counts of the forwarder at each scrape."""

    def __init__(self, families: Collection[Family], forwarder: Forwarder) -> None:
        """Serve the counts of ``families``, whose NodePorts the forwarder serves."""
        self._families, self._forwarder = families, forwarder

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        listeners = GaugeMetricFamily(
            "kubeproxy_nftables_localhost_nodeport_listeners",
            "Number of NodePorts served on a loopback address",
            labels=("ip_family",),
        )
        failures = CounterMetricFamily(
            "kubeproxy_nftables_localhost_nodeport_listener_creation_failures",
            "Number of failed attempts to open a NodePort on a loopback address",
            labels=("ip_family",),
        )
        for family in self._families:
            listeners.add_metric((family.value,), self._forwarder.listener_count(family))
            failures.add_metric((family.value,), self._forwarder.listen_failures(family))
        yield listeners
        yield failures
