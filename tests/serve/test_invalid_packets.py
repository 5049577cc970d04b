"""InvalidPackets: the total of dropped packets. A function takes the kernel's place."""

import logging

import pytest

from knft.errors import KernelError
from knft.families import Family
from knft.serve import rule_counts
from knft.serve.invalid_packets import InvalidPackets


class Counters:
    """What the kernel's rules have counted in each family, None if there is no rule."""

    def __init__(self) -> None:
        self.values: dict[Family, int | None] = dict.fromkeys(Family)
        self.error = ""

    def read(self, family: int, table: str, chain: str) -> int | None:
        assert (table, chain) == ("knft", "filter-forward")
        if self.error:
            raise KernelError(self.error)
        return next(value for each, value in self.values.items() if each.number == family)


@pytest.fixture
def counters(monkeypatch: pytest.MonkeyPatch) -> Counters:
    created = Counters()
    monkeypatch.setattr(rule_counts, "counted_packets", created.read)
    return created


def _totals(counters: Counters, *readings: tuple[int | None, int | None]) -> list[int | None]:
    packets, totals = InvalidPackets(), []
    for ipv4, ipv6 in readings:
        counters.values = {Family.IPV4: ipv4, Family.IPV6: ipv6}
        packets.read()
        totals.append(packets.total)
    return totals


def test_total_begins_when_both_families_have_a_rule(counters: Counters) -> None:
    """A process that is started again continues the count of its predecessor, which Prometheus knows."""
    assert _totals(counters, (None, None), (5, None), (6, 10), (7, 12)) == [None, None, 16, 19]


def test_total_never_falls(counters: Counters) -> None:
    """A rule that is written again begins at 0; a rule that another program has deleted counts nothing."""
    assert _totals(counters, (5, 5), (2, 5), (None, 6), (4, 6)) == [10, 12, 13, 15]


def test_metric_appears_with_the_first_total(counters: Counters) -> None:
    packets = InvalidPackets()
    packets.read()
    assert list(packets.metrics()) == []
    counters.values = dict.fromkeys(Family, 4)
    packets.read()
    (metric,) = packets.metrics()
    (sample,) = metric.samples
    name = "kubeproxy_iptables_ct_state_invalid_dropped_packets_total"
    assert (sample.name, sample.labels, sample.value) == (name, {}, 8)


def test_error_is_logged_when_it_begins_and_when_it_ends(counters: Counters, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "knft")
    packets = InvalidPackets()
    counters.error = "refused"
    packets.read()
    packets.read()
    counters.error = ""
    packets.read()
    problem = "the dropped INVALID packets are not counted: refused"
    families = [family.value for family in Family]
    assert caplog.messages == [
        *(f"{family}: {problem}" for family in families),
        *(f"{family}: no longer: {problem}" for family in families),
    ]
