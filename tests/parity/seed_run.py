"""Runs a history on all nodes, and returns everything in which knft differs from kube-proxy."""

import json
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple, Self

import urllib3
from msgspec.structs import replace

from tests.cluster.applier import Applier
from tests.cluster.cluster import Cluster as ApiCluster
from tests.cluster.service_account import ServiceAccount
from tests.parity import captures
from tests.parity.compare_flows import FlowComparison
from tests.parity.compare_packets import Observations
from tests.parity.compare_rules import compare_rules
from tests.parity.compare_servers import compare_health, compare_metrics
from tests.parity.exceptions import ExceptionUses
from tests.parity.marker import Marker
from tests.parity.nodes import KubeProxyNode, Nodes
from tests.parity.packets import packets, sticky_packets
from tests.parity.random_cluster import Cluster, History, Settings, manifests
from tests.support.lab.links import flush_conntrack
from tests.support.lab.namespace import Namespace

COMPARISONS = ("packets", "diff", "rules", "servers", "flows")
"""Packets, ``knft diff``, rendered iptables rules, HTTP servers, and conntrack entries."""
PROGRAM = "program"
"""The condition of every comparison: each proxy runs, and programs each change."""
_FAILURES = (AssertionError, subprocess.SubprocessError, urllib3.exceptions.HTTPError)
"""The errors by which a proxy or a command shows that it has failed: it exits, hangs, or refuses the input."""
_COMMANDS_AT_ONCE = 2
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
        self.seconds = dict.fromkeys((PROGRAM, *COMPARISONS), 0.0)

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
        self.uses = ExceptionUses()

    def __enter__(self) -> Self:
        """Start the API server in a network namespace of its own, and build the nodes."""
        with ExitStack() as opened:
            namespace = Namespace.create("control-plane")
            opened.callback(namespace.close)
            cluster = opened.enter_context(ApiCluster(namespace, self._folder))
            self.api = cluster.api
            self._applier = Applier(cluster)
            self.nodes = opened.enter_context(Nodes(cluster, ServiceAccount(cluster)))
            self._open = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """End all processes."""
        self._open.close()

    def run(self, history: History, comparisons: tuple[str, ...] = COMPARISONS) -> list[Problem]:
        """Apply the clusters in turn, with new proxies; return the problems of the first change that has any.

        A proxy that exits or does not program a change is a problem of the comparison PROGRAM.
        """
        self._runs += 1
        folder = self._folder / f"run-{self._runs}"
        folder.mkdir()
        run = _Run(self, history, comparisons, folder)
        try:
            for change in range(len(history.clusters)):
                run.step(change)
                self.counts.clusters += 1
                if run.problems:
                    break
            return run.problems
        finally:
            self.nodes.stop()

    def apply(self, cluster: Cluster, marker: Marker) -> None:
        """Make the API server hold a cluster, and write the marker."""
        self._applier.apply(manifests(cluster))
        assert not self._applier.refused, self._applier.refused
        marker.write(cluster.zone)

    def write_objects(self, folder: Path) -> Path:
        """Write everything that a proxy watches to a file; return its path."""
        items = [item for kind in _WATCHED for item in self.api.list(kind)]
        path = folder / "objects.json"
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
        return path


class _Run:
    """A history that runs with new proxies; ``problems`` has everything in which they differ."""

    def __init__(self, testbed: Testbed, history: History, comparisons: tuple[str, ...], folder: Path) -> None:
        self._testbed, self._nodes = testbed, testbed.nodes
        self._history, self._comparisons, self._folder = history, comparisons, folder
        self._marker = Marker(testbed.api)
        self.problems: list[Problem] = []

    def step(self, change: int) -> None:
        """Program a cluster (0: the first), and compare everything."""
        flows = None
        with self._problems_of(PROGRAM, change):
            if change and "flows" in self._comparisons:
                flows = self._create_flows(change)
            self._program(change)
        if self.problems:
            return
        settings, cluster = self._history.settings, self._history.clusters[change]
        numbers = {service.number for one in self._history.clusters for service in one.services}
        step = _Step(self._testbed, settings, cluster, self._testbed.write_objects(self._folder), sorted(numbers))
        comparisons: dict[str, Callable[[], Iterable[str]]] = {
            "flows": lambda: flows.differences(cluster) if flows is not None else (),
            "diff": step.diff,
            "packets": step.packets,
            "rules": step.rules,
            "servers": step.servers,
        }
        for name in (name for name in comparisons if name in self._comparisons):
            with self._problems_of(name, change):
                self.problems += [Problem(name, change, text) for text in comparisons[name]()]
        with self._problems_of(PROGRAM, change):
            self._nodes.check()

    def _create_flows(self, change: int) -> FlowComparison:
        before = self._history.clusters[change - 1]
        flows = FlowComparison(self._nodes, self._marker, before, self._history.settings, self._testbed.uses)
        self._testbed.counts.flows += flows.count
        return flows

    def _program(self, change: int) -> None:
        """Write a cluster, and wait until all nodes have programmed it; start the proxies before the first."""
        cluster = self._history.clusters[change]
        if change == 0:
            # kube-proxy 1.36 may miss the zone that the Node has at its start: its NodeTopologyConfig adds a handler to
            # a running informer before the proxier is registered. It does not miss a change.
            self._testbed.apply(replace(cluster, zone=""), self._marker)
            self._nodes.start(self._history.settings, self._folder)
            self._nodes.wait_for(self._marker)
        self._testbed.apply(cluster, self._marker)
        self._nodes.wait_for(self._marker)

    @contextmanager
    def _problems_of(self, comparison: str, change: int) -> Iterator[None]:
        """Count the time of the block; add a problem if it fails as a proxy or a command does."""
        started = time.monotonic()
        with problems_of(comparison, change, self.problems):
            yield
        self._testbed.counts.seconds[comparison] += time.monotonic() - started


@contextmanager
def problems_of(comparison: str, change: int, problems: list[Problem]) -> Iterator[None]:
    """Add a problem if the block fails as a proxy or a command does."""
    try:
        yield
    except _FAILURES as error:
        notes = getattr(error, "__notes__", ())
        problems.append(Problem(comparison, change, "\n".join((f"{type(error).__name__}: {error}", *notes))))


class _Step:
    """One cluster that all nodes have programmed."""

    def __init__(
        self, testbed: Testbed, settings: Settings, cluster: Cluster, objects: Path, numbers: Sequence[int]
    ) -> None:
        self._testbed, self._nodes = testbed, testbed.nodes
        self._settings, self._cluster, self._objects = settings, cluster, objects
        self._numbers = numbers
        self._diffs: dict[str, captures.DiffResult] = {}

    def _diff_of(self, node: KubeProxyNode) -> captures.DiffResult:
        if node.name not in self._diffs:
            self._diffs[node.name] = captures.DiffResult(captures.sides(node, self._objects, self._settings))
        return self._diffs[node.name]

    def diff(self) -> Iterator[str]:
        """Compare the rules with ``knft diff``: by its command line, live and captured, and in this process.

        The packets of mode iptables need the result in this process; that of mode nftables would add nothing.
        """
        commands = [
            partial(compare, node, self._objects, self._settings)
            for node in (self._nodes.nftables, self._nodes.iptables)
            for compare in (captures.live_diff, captures.captured_diff)
        ]
        with ThreadPoolExecutor(_COMMANDS_AT_ONCE) as threads:
            running = [threads.submit(command) for command in commands]
            problems = self._diff_of(self._nodes.iptables).problems
            for done in running:
                yield from done.result()
        yield from (f"knft diff beside {self._nodes.iptables.name}: {text}" for text in problems)

    def packets(self) -> Iterator[str]:
        """Compare real packets: equal in mode nftables; in mode iptables different exactly where expected."""
        nftables, iptables, knft = self._nodes.nftables, self._nodes.iptables, self._nodes.knft
        for node in self._nodes:
            flush_conntrack(node.namespace)
        targets, sticky = packets(self._cluster), sticky_packets(self._cluster)
        diff = self._diff_of(iptables)
        expected = [target for target in targets if diff.reasons(target)]
        self._testbed.counts.packets += len(targets)
        self._testbed.counts.expected += len(expected)
        allowed = {
            target: dict(zip((iptables.name, knft.name), diff.allowed(target), strict=True)) for target in expected
        }
        observed = Observations((nftables, iptables), knft, targets, sticky, allowed)
        observed.observe()
        yield from (f"{nftables.name}: {mismatch}" for mismatch in observed.mismatches(nftables))
        differing = {mismatch.target: mismatch for mismatch in observed.mismatches(iptables)}
        yield from (f"{iptables.name}: {one}" for target, one in differing.items() if target not in allowed)
        for target in expected:
            if target not in differing and diff.is_visible(target, has_any_endpoint=target in sticky):
                yield f"{iptables.name}: {target}: results are equal, expected the difference {diff.names(target)}"
        for target, name, results in observed.disallowed():
            reported = " or ".join(sorted(allowed[target][name]))
            yield f"{name}: {target}: {' or '.join(sorted(results))}, but {diff.names(target)} is {reported}"
        yield from observed.strays()

    def rules(self) -> list[str]:
        """Compare kube-proxy's iptables rules with the rendered ones."""
        return compare_rules(self._nodes.iptables, self._objects, self._settings)

    def servers(self) -> Iterator[str]:
        """Compare health checks and metrics."""
        for node in (self._nodes.nftables, self._nodes.iptables):
            yield from compare_health(node, self._nodes.knft, self._numbers)
            yield from compare_metrics(node, self._nodes.knft, self._testbed.uses)
