"""Runs a history on all nodes, and returns everything in which knft differs from kube-proxy."""

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, Self

from msgspec.structs import replace

from tests.cluster.applier import Applier
from tests.cluster.cluster import Cluster as ApiCluster
from tests.cluster.service_account import ServiceAccount
from tests.parity import captures
from tests.parity.compare_flows import FlowComparison
from tests.parity.compare_packets import Observations
from tests.parity.compare_rules import compare_rules
from tests.parity.compare_servers import compare_health, compare_metrics
from tests.parity.dial import Target
from tests.parity.marker import Marker
from tests.parity.nodes import KubeProxyNode, Nodes, ParityNode
from tests.parity.packets import packets, sticky_packets
from tests.parity.random_cluster import Cluster, History, Settings, manifests
from tests.support.lab.links import flush_conntrack
from tests.support.lab.namespace import Namespace

COMPARISONS = ("packets", "diff", "rules", "servers", "flows")
"""Packets, ``knft diff``, rendered iptables rules, HTTP servers, and conntrack entries."""
_WATCHED = ("Node", "Service", "EndpointSlice", "ServiceCIDR")


class Problem(NamedTuple):
    """A difference: the comparison that found it, after how many changes, and a description."""

    comparison: str
    change: int
    text: str


class Counts:
    """What has been compared so far."""

    def __init__(self) -> None:
        """Begin at zero."""
        self.clusters = self.packets = self.expected = self.flows = 0
        self.seconds = dict.fromkeys(("program", *COMPARISONS), 0.0)

    def __str__(self) -> str:
        """Return one line."""
        times = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in self.seconds.items())
        return (
            f"{self.clusters} clusters, {self.packets} packets on 3 nodes, {self.expected} of them with an expected "
            f"difference in mode iptables, {self.flows} UDP entries ({times})"
        )


class Testbed:
    """An API server and the nodes; a context manager."""

    def __init__(self, folder: Path) -> None:
        """Start nothing yet; logs go to ``folder``."""
        self._folder = folder
        self._runs = 0
        self._open = ExitStack()
        self.counts = Counts()

    def __enter__(self) -> Self:
        """Start the API server in a network namespace of its own, and build the nodes."""
        with ExitStack() as opened:
            namespace = Namespace.create("control-plane")
            opened.callback(namespace.close)
            cluster = opened.enter_context(ApiCluster(namespace, self._folder))
            self._cluster = cluster
            self._applier = Applier(cluster)
            self.nodes = opened.enter_context(Nodes(cluster, ServiceAccount(cluster)))
            self._open = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """End all processes."""
        self._open.close()

    def run(self, history: History, comparisons: tuple[str, ...] = COMPARISONS) -> list[Problem]:
        """Apply the clusters in turn, with new proxies; return the problems of the first change that has any."""
        self._runs += 1
        folder = self._folder / f"run-{self._runs}"
        folder.mkdir()
        marker = Marker(self._cluster.api)
        try:
            for change in range(len(history.clusters)):
                problems = list(self._step(history, change, marker, folder, comparisons))
                self.counts.clusters += 1
                if problems:
                    return problems
            return []
        finally:
            self.nodes.stop()

    def _step(
        self, history: History, change: int, marker: Marker, folder: Path, chosen: tuple[str, ...]
    ) -> Iterator[Problem]:
        started, cluster = time.monotonic(), history.clusters[change]
        flows = None
        if change and "flows" in chosen:
            flows = FlowComparison(self.nodes, marker, history.clusters[change - 1], history.settings)
            self.counts.flows += flows.count
        if change == 0:
            # kube-proxy 1.36 may miss the zone that the Node has at its start: its NodeTopologyConfig adds a handler to
            # a running informer before the proxier is registered. It does not miss a change.
            self._apply(replace(cluster, zone=""), marker)
            self.nodes.start(history.settings, folder)
            self.nodes.wait_for(marker)
        self._apply(cluster, marker)
        self.nodes.wait_for(marker)
        self._count("program", started)
        is_last = change == len(history.clusters) - 1
        step = _Step(self, history.settings, cluster, self._write_objects(folder), is_last=is_last)
        for name, compare in (
            ("flows", lambda: flows.differences(cluster) if flows is not None else []),
            ("diff", step.diff),
            ("packets", step.packets),
            ("rules", step.rules),
            ("servers", step.servers),
        ):
            if name in chosen:
                started = time.monotonic()
                yield from (Problem(name, change, text) for text in compare())
                self._count(name, started)

    def _apply(self, cluster: Cluster, marker: Marker) -> None:
        self._applier.apply(manifests(cluster))
        assert not self._applier.refused, self._applier.refused
        marker.write(cluster.zone)

    def _count(self, name: str, started: float) -> None:
        self.counts.seconds[name] += time.monotonic() - started

    def _write_objects(self, folder: Path) -> Path:
        items = [item for kind in _WATCHED for item in self._cluster.api.list(kind)]
        path = folder / "objects.json"
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
        return path


class _Step:
    """One cluster that all nodes have programmed."""

    def __init__(self, testbed: Testbed, settings: Settings, cluster: Cluster, objects: Path, *, is_last: bool) -> None:
        self._testbed, self._nodes = testbed, testbed.nodes
        self._settings, self._cluster, self._objects = settings, cluster, objects
        self._is_last = is_last
        self._diffs: dict[str, captures.DiffResult] = {}

    def _diff_of(self, node: KubeProxyNode) -> captures.DiffResult:
        if node.name not in self._diffs:
            self._diffs[node.name] = captures.DiffResult(captures.sides(node, self._objects, self._settings))
        return self._diffs[node.name]

    def diff(self) -> Iterator[str]:
        """Compare the rules with ``knft diff``; after the last change also by its command line, captured and live."""
        for node in (self._nodes.nftables, self._nodes.iptables):
            yield from (f"knft diff beside {node.name}: {text}" for text in self._diff_of(node).problems)
            if self._is_last:
                yield from captures.live_diff(node, self._objects, self._settings)
                yield from captures.captured_diff(node, self._objects, self._settings)

    def packets(self) -> Iterator[str]:
        """Compare real packets: equal in mode nftables; in mode iptables different exactly where expected."""
        nftables, iptables, knft = self._nodes
        for node in self._nodes:
            flush_conntrack(node.namespace)
        targets = packets(self._cluster)
        expected = {target for target in targets if self._diff_of(self._nodes.iptables).reasons(target)}
        self._testbed.counts.packets += len(targets)
        self._testbed.counts.expected += len(expected)
        observed = Observations((nftables, iptables), knft, targets, sticky_packets(self._cluster))
        observed.observe(lambda node, target: node is iptables and target in expected)
        yield from (f"{nftables.name}: {mismatch}" for mismatch in observed.mismatches(nftables))
        yield from self._iptables_packets(observed, iptables, expected, targets)

    def _iptables_packets(
        self, observed: Observations, iptables: ParityNode, expected: set[Target], targets: list[Target]
    ) -> Iterator[str]:
        differing = {mismatch.target: mismatch for mismatch in observed.mismatches(iptables)}
        for target, mismatch in differing.items():
            if target not in expected:
                yield f"{iptables.name}: {mismatch}"
        diff = self._diff_of(self._nodes.iptables)
        for target in targets:
            if target in expected and target not in differing and diff.is_visible(target):
                reasons = " + ".join(sorted(diff.reasons(target)))
                yield f"{iptables.name}: {target}: results are equal, expected the difference {reasons!r}"

    def rules(self) -> list[str]:
        """Compare kube-proxy's iptables rules with the rendered ones."""
        return compare_rules(self._nodes.iptables, self._objects, self._settings)

    def servers(self) -> Iterator[str]:
        """Compare health checks, and metrics after the last change, when all of them have values."""
        for node in (self._nodes.nftables, self._nodes.iptables):
            is_same_mode = node is self._nodes.nftables
            yield from compare_health(node, self._nodes.knft, self._cluster, same_mode=is_same_mode)
        if self._is_last:
            yield from compare_metrics(self._nodes.nftables, self._nodes.knft)
