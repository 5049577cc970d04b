"""LocalhostRejections: totals by family and protocol. A function takes the kernel's place."""

import pytest

from knft.config import Config
from knft.families import Family
from knft.serve import rule_counts
from knft.serve.localhost_rejections import LocalhostRejections


def test_total_never_falls(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chain that is written again begins at 0. Protocols that are served in a family are not counted."""
    counts: dict[tuple[int, str], int | None] = {}
    monkeypatch.setattr(rule_counts, "counted_packets", lambda family, _, chain: counts.get((family, chain)))
    config = Config("node-1", nodeport_addresses=("127.0.0.0/8",), localhost_nodeports=True)
    rejections = LocalhostRejections(config)
    udp, tcp = "localhost-nodeport-reject-udp", "localhost-nodeport-reject-tcp"
    found = []
    for reading in (None, 5, 7, 2):
        counts = {(Family.IPV4.number, udp): reading, (Family.IPV6.number, tcp): reading}
        rejections.read()
        (metric,) = rejections.metrics()
        found.append({tuple(each.labels.values()): each.value for each in metric.samples})
    assert found == [
        {},
        {("IPv4", "UDP"): 5, ("IPv6", "TCP"): 5},
        {("IPv4", "UDP"): 7, ("IPv6", "TCP"): 7},
        {("IPv4", "UDP"): 9, ("IPv6", "TCP"): 9},
    ]
