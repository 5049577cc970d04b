"""InvalidPackets: how many packets ``--drop-invalid-packets`` has dropped, as the kernel counts them."""

from collections.abc import Iterator

from prometheus_client.metrics_core import CounterMetricFamily, Metric

from knft.families import Family
from knft.render.names import FILTER_FORWARD
from knft.serve.rule_counts import RuleCounts


class InvalidPackets:
    """The packets that were dropped because conntrack found them INVALID; one thread reads, any may get the metrics."""

    def __init__(self) -> None:
        """Start without a reading."""
        self._counts = RuleCounts("the dropped INVALID packets", dict.fromkeys(Family, (FILTER_FORWARD,)))

    def read(self) -> None:
        """Read the counters of both families."""
        self._counts.read()

    @property
    def total(self) -> int | None:
        """The dropped packets of both families, None before both were read.

        A first value that is too small would look like a reset of the counter.
        """
        totals = self._counts.totals
        return sum(totals.values()) if len(totals) == len(Family) else None

    def metrics(self) -> Iterator[Metric]:
        """Yield the metric, which has kube-proxy's name, once there is a reading."""
        if self.total is not None:
            yield CounterMetricFamily(
                "kubeproxy_iptables_ct_state_invalid_dropped_packets",
                "Forwarded packets dropped because conntrack found them INVALID",
                value=self.total,
            )
