"""LocalhostRejections: how many packets to NodePorts at loopback addresses were rejected, as the kernel counts them."""

from collections.abc import Iterator

from prometheus_client.metrics_core import CounterMetricFamily, Metric

from knft.config import Config
from knft.families import Family
from knft.render.localhost_nodeports import reject_chain_name
from knft.serve.rule_counts import RuleCounts


class LocalhostRejections:
    """The packets that the rules of kube-proxy's gate reject; one thread reads, any may get the metrics."""

    def __init__(self, config: Config) -> None:
        """Start without a reading."""
        self._protocols = {family: config.rejected_localhost_protocols(family) for family in Family}
        chains = {family: tuple(map(reject_chain_name, found)) for family, found in self._protocols.items()}
        self._counts = RuleCounts("the packets rejected at loopback addresses", chains)

    def read(self) -> None:
        """Read the counters of both families."""
        self._counts.read()

    def metrics(self) -> Iterator[Metric]:
        """Yield the metric, which has kube-proxy's name, with the values that were read."""
        rejected = CounterMetricFamily(
            "kubeproxy_nftables_localhost_nodeport_rejected_packets",
            "Packets rejected because they were sent to NodePorts at loopback addresses that are not served",
            labels=("ip_family", "protocol"),
        )
        totals = self._counts.totals
        for family, protocols in self._protocols.items():
            for protocol in protocols:
                total = totals.get((family, reject_chain_name(protocol)))
                if total is not None:
                    rejected.add_metric((family.value, protocol), total)
        yield rejected
