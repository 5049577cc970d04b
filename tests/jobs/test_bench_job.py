"""``make bench`` works from end to end, with clusters too small to measure anything."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from knft.families import Family
from knft.render.names import WIDE_PREFIX
from knft.sync.assemble import rendering_daemon
from tests.bench.changes import ANOTHER_REPLACED, kinds, steps
from tests.bench.cluster import Cluster, ServiceSpec, Shape, numbered_ports
from tests.bench.latency import FIRST_SERVICE
from tests.bench.manifests import changes, first_changes
from tests.bench.measure import percentile
from tests.bench.peers.nftables import NftablesLayout, share_of_anonymous_maps
from tests.bench.peers.registry import PEERS
from tests.bench.plot import can_plot
from tests.bench.record import BARE, ENDED, FULL, KNFT, MEMORY
from tests.bench.shapes import QUICK
from tests.bench.timed_knft import CONFIG

TIMEOUT = 300
SHAPE = Shape("test", 120, 3)


@pytest.mark.kernel
def test_tiny_run_writes_json_table_and_plot(tmp_path: Path) -> None:
    """Every proxy loads every cluster that it supports, makes every change, and serves connections."""
    names = ["20x3", "sticky 5x3", "ranges 5x3", "wide 5x3", "wide dual stack 5x3"]
    options = ["--quick", "--syncs", "4", "--sizes", *names, "--results", str(tmp_path)]
    command = [sys.executable, "-m", "tests.bench", *options]
    process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT)
    assert process.returncode == 0, process.stderr

    records = json.loads((tmp_path / "results.json").read_text())["records"]
    assert [record for record in records if record["measure"] == ENDED] == []
    measured = {(record["proxy"], record["shape"], record["measure"]) for record in records}
    shapes = [shape for shape in QUICK if shape.name in names]
    expected = {(proxy, shape) for proxy in PEERS for shape in shapes if PEERS[proxy].supports(shape)}
    expected |= {(KNFT, shape) for shape in shapes}
    for proxy, shape in expected:
        assert {(proxy, shape.name, measure) for measure in (FULL, *kinds(shape), MEMORY)} <= measured
        assert (proxy, "20x3", FIRST_SERVICE) in measured
    assert {(BARE, shape.name, FULL) for shape in shapes if not shape.is_dual_stack} <= measured

    table = (tmp_path / "table.md").read_text()
    assert "**Full sync, s" in table
    assert all(f"| {name} |" in table for name in names)
    if can_plot():
        assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    else:
        assert "no plot without matplotlib" in process.stdout


@pytest.mark.parametrize(("share", "value"), [(0.5, 2.0), (0.51, 3.0), (0.99, 4.0), (0.0, 1.0), (1.0, 4.0)])
def test_percentile_is_a_measured_value(share: float, value: float) -> None:
    assert percentile([4.0, 1.0, 3.0, 2.0], share) == value


@pytest.mark.parametrize(
    ("kind", "services", "objects"),
    [("endpoint replaced", 1, 1), ("Service added", 1, 2), ("scaled by one", 1, 1), ("100 changed at once", 100, 100)],
)
def test_step_changes_the_expected_number_of_objects(kind: str, services: int, objects: int) -> None:
    """Counts the changed Services, and the objects that a watch reports."""
    for step in steps(Cluster(SHAPE), kind, 5):
        assert len({after.number for _, after in step}) == services
        assert len(list(changes(step))) == objects
        assert all(before != after for before, after in step)


def test_scaling_up_and_down_keeps_the_size_of_the_cluster() -> None:
    cluster = Cluster(SHAPE)
    before = sum(len(service.endpoints) for service in cluster)
    for _ in steps(cluster, "scaled by one", 10):
        pass
    assert sum(len(service.endpoints) for service in cluster) == before


def test_replaced_endpoint_rewrites_one_chain_of_the_1_36_layout() -> None:
    """The Service's chain is flushed and written again; no other Service is changed."""
    layout = NftablesLayout(share_of_anonymous_maps, marks_by_chain=False)
    (step,) = steps(Cluster(Shape("test", 1, 3)), "endpoint replaced", 1)
    lines = layout.change(step).now.splitlines()
    name = lines[0].split()[-1]
    assert lines[:2] == [f"add chain ip kube-proxy {name}", f"flush chain ip kube-proxy {name}"]
    assert [line.split()[:2] for line in lines[2:]] == [["delete", "element"], ["add", "rule"]]
    assert "hairpin-connections { 10.128.0.1 . 10.128.0.1 . tcp . 8080" in lines[2]


WIDE = ServiceSpec(0, (), ports=numbered_ports(10), external_ip_count=20, is_dual_stack=True)
BESIDE_WIDE = Shape("beside wide", 5, 3, first_endpoints=20, wide=WIDE)


@pytest.mark.parametrize(("kind", "objects"), [("endpoint replaced", {0: 2}), (ANOTHER_REPLACED, {1: 1})])
def test_changes_beside_a_wide_service(kind: str, objects: dict[int, int]) -> None:
    """Counts the changed slices for each changed Service; the dual-stack Service has one for each family."""
    (step,) = steps(Cluster(BESIDE_WIDE), kind, 1)
    assert {after.number: len(list(changes(((before, after),)))) for before, after in step} == objects


def test_wide_service_in_the_1_36_layout_has_two_chains_for_each_port() -> None:
    """External IPs are elements of service-ips, and lead to one chain for each port."""
    layout = NftablesLayout(share_of_anonymous_maps, marks_by_chain=False)
    (wide, *_) = Cluster(BESIDE_WIDE)
    lines = layout.change(((None, wide),)).now.splitlines()
    counts = Counter(line.split()[4].split("-")[0] for line in lines if line.startswith("add chain"))
    assert counts == {"service": 10, "external": 10}
    frontends = [line for line in lines if line.startswith("add element ip kube-proxy service-ips")]
    assert len(frontends) == 10 * 21
    assert sum("goto external-" in line for line in frontends) == 10 * 20
    assert sum(" map { 0 : " in line for line in lines) == 10


@pytest.mark.parametrize("shape", [shape for shape in QUICK if shape.wide], ids=lambda shape: shape.name)
def test_wide_services_have_the_wide_layout(shape: Shape) -> None:
    daemon, recorders = rendering_daemon(CONFIG)
    daemon.handle(first_changes(Cluster(shape)))
    daemon.sync()
    for family in Family if shape.is_dual_stack else (Family.IPV4,):
        _, sent = recorders[family].first_sync()
        assert any(chain.name.startswith(WIDE_PREFIX) for chain in (*sent.new_chains, *sent.chains))


def test_iptables_layouts_have_no_wide_services() -> None:
    assert {name for name, peer in PEERS.items() if not peer.has_wide} == {"iptables-legacy", "iptables-nft"}
