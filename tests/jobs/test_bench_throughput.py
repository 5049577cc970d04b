"""The comparison of established connections notices a proxy that is slower."""

import pytest

from tests.cluster.bench.proxy_names import IPTABLES, KNFT, NFTABLES
from tests.cluster.bench.throughput import KINDS, interval, shortfalls

KUBE_PROXY = [10.0, 10.2, 9.8, 10.1, 9.9]


def test_interval_is_that_of_students_t() -> None:
    """The half of it is 2.776 times 0.158 divided by the root of 5."""
    found = interval(KUBE_PROXY)
    assert found.mean == pytest.approx(10.0)
    assert found.half == pytest.approx(0.1963, abs=1e-4)


@pytest.mark.parametrize("slower_than", [NFTABLES, IPTABLES])
def test_interval_below_that_of_a_mode_of_kube_proxy_is_a_shortfall(slower_than: str) -> None:
    own = [value - 0.5 for value in KUBE_PROXY]
    samples = {"cluster IP": {KNFT: own, NFTABLES: own, IPTABLES: own, slower_than: KUBE_PROXY}}
    (line,) = shortfalls(samples)
    assert line == f"cluster IP: knft 9.5 ± 0.2, {slower_than} 10 ± 0.2"


@pytest.mark.parametrize("difference", [-0.3, 0.0, 5.0])
def test_overlapping_intervals_and_faster_ones_are_no_shortfall(difference: float) -> None:
    own = [value + difference for value in KUBE_PROXY]
    assert not list(shortfalls({"NodePort": {KNFT: own, NFTABLES: KUBE_PROXY, IPTABLES: KUBE_PROXY}}))


def test_each_kind_has_its_unit() -> None:
    """iperf3 reports bits of TCP data, and packets of UDP."""
    end = {
        "sum_received": {"bits_per_second": 76e6 * 8},
        "sum": {"packets": 500_000, "lost_packets": 100_000, "seconds": 2.0},
    }
    assert {kind.label: (kind.unit, kind.value(end)) for kind in KINDS} == {
        "TCP": ("Gbit/s", 0.608),
        "TCP, 76 bytes": ("1 000 packets/s", 1000.0),
        "UDP, 64 bytes": ("1 000 packets/s", 200.0),
        "UDP, 1400 bytes": ("1 000 packets/s", 200.0),
    }
