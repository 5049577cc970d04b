"""InvalidPackets: how many packets ``--drop-invalid-packets`` has dropped, as the kernel counts them."""

from collections.abc import Iterator

from prometheus_client.metrics_core import CounterMetricFamily, Metric

from knft.errors import KernelError
from knft.families import Family
from knft.kernel.rule_counter import counted_packets
from knft.render.names import FILTER_FORWARD, TABLE
from knft.sync.lasting_problems import LastingProblems


class InvalidPackets:
    """The packets that were dropped because conntrack found them INVALID; one thread reads, any may get the metrics.

    The rule begins at 0 when it is written again, so the total grows by the difference between two readings.
    """

    def __init__(self) -> None:
        """Start without a reading."""
        self._last: dict[Family, int] = {}
        self._problems = LastingProblems()
        self.total: int | None = None
        """The dropped packets of both families, None before both were read."""

    def read(self) -> None:
        """Read the counters of both families; log an error when it begins and when it ends."""
        grown = 0
        for family in Family:
            count = self._read_family(family)
            if count is not None:
                last = self._last.get(family, 0)
                grown += count - last if count >= last else count
                self._last[family] = count
        # A first value that is too small would look like a reset of the counter.
        if len(self._last) == len(Family):
            self.total = sum(self._last.values()) if self.total is None else self.total + grown

    def _read_family(self, family: Family) -> int | None:
        count, problems = None, list[str]()
        try:
            count = counted_packets(family.number, TABLE, FILTER_FORWARD)
        except KernelError as error:
            problems.append(f"the dropped INVALID packets are not counted: {error}")
        self._problems.update(problems, family.value)
        return count

    def metrics(self) -> Iterator[Metric]:
        """Yield the metric, which has kube-proxy's name, once there is a reading."""
        if self.total is not None:
            yield CounterMetricFamily(
                "kubeproxy_iptables_ct_state_invalid_dropped_packets",
                "Forwarded packets dropped because conntrack found them INVALID",
                value=self.total,
            )
