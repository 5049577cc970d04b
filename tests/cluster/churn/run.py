"""One run: a cluster, knft with one minimum sync interval, writers, and the measured result."""

import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import msgspec
from msgspec import Struct

from tests.bench.measure import percentile, resident_mib
from tests.bench.process_tree import cpu_seconds
from tests.cluster.applier import Applier
from tests.cluster.churn.commit_listener import CommitListener
from tests.cluster.churn.histogram import scrape_histogram
from tests.cluster.churn.numbered_endpoints import address, service
from tests.cluster.churn.writer import WriterPlan, WriterResult
from tests.cluster.cluster import Cluster
from tests.cluster.cluster_knft import ClusterKnft
from tests.cluster.expected_tables import table_differences
from tests.cluster.fault_test_node import FLAGS, RANGES, ZONE
from tests.cluster.marker import Marker
from tests.cluster.service_account import ServiceAccount
from tests.support.lab.namespace import Namespace
from tests.support.scenario import Scenario

DEFAULT = "default"
"""The interval without a flag."""

_EACH_WRITER = 1 << 20
"""The count of numbers that each writer has for its changes."""


class ChurnParameters(Struct, frozen=True):
    """The load: ``changes`` endpoints per second, ``each`` per update of a slice; each Service has one slice.

    The updates are spread evenly over the time, or all writers send one at the same time.
    """

    services: int
    endpoints: int
    changes: int
    each: int
    writers: int
    seconds: float
    together: bool = False


class ChurnResult(Struct, frozen=True):
    """The measurements of one run; times in seconds.

    ``superseded`` changes were replaced before a sync could program them. ``latency`` is that of all other changes, and
    ``histogram`` is knft's own metric; ``wrong`` lists lost changes and differences in the tables.
    """

    interval: str
    parameters: ChurnParameters
    changes: int
    changes_a_second: float
    superseded: int
    latency: dict[str, float]
    histogram: dict[str, float]
    answered: dict[str, float]
    syncs: float
    cpu_cores: dict[str, float]
    knft_mib: float
    wrong: list[str]


class ChurnRun:
    """A context manager: inside of it, a cluster, knft and the writers run."""

    def __init__(self, folder: Path, parameters: ChurnParameters, interval: str) -> None:
        """Start nothing yet; ``interval`` is a value of ``--min-sync-period`` or DEFAULT, files go to ``folder``."""
        self._folder, self._parameters, self._interval = folder, parameters, interval
        self._open = ExitStack()

    def __enter__(self) -> Self:
        """Start a cluster, knft and the writers, and wait until their slices are programmed."""
        with ExitStack() as stack:
            node = Namespace.create("churn")
            stack.callback(node.close)
            self._cluster = cluster = stack.enter_context(Cluster(node, self._folder))
            Applier(cluster).apply(Scenario("", [], ()).manifests())
            for index in range(self._parameters.services):
                cluster.api.create(service(index))
            self._marker = Marker(cluster.api, node)
            chosen = () if self._interval == DEFAULT else (f"--min-sync-period={self._interval}",)
            flags = (*FLAGS, *chosen, "-v=0")
            self._daemon = ClusterKnft(cluster, ServiceAccount(cluster), self._folder / "knft", *flags)
            stack.callback(self._daemon.close)
            self._daemon.start()
            self._writers = [self._writer(number) for number in range(self._parameters.writers)]
            for writer in self._writers:
                stack.callback(writer.kill)
            for writer in self._writers:
                assert writer.stdout is not None
                assert writer.stdout.readline() == b"ready\n"
            self._wait_programmed()
            self._open = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop everything."""
        self._open.close()

    def measure(self) -> ChurnResult:
        """Let the writers write, and return the measurements."""
        before, used = scrape_histogram(self._cluster.namespace), self._cpu()
        with CommitListener(self._cluster.namespace, self._folder / "notifications") as listener:
            begin = time.time() + 1
            written = self._write(begin)
            seconds = time.time() - begin
            spent = {name: now - used[name] for name, now in self._cpu().items()}
            self._wait_programmed()
        since = scrape_histogram(self._cluster.namespace).since(before)
        sent = {first + more: at for one in written for first, many, at, _ in one.updates for more in range(many)}
        seen = listener.first_seen(sent)
        latency = [seconds_seen - sent[number] for number, seconds_seen in seen.items()]
        return ChurnResult(
            interval=self._interval,
            parameters=self._parameters,
            changes=len(sent),
            changes_a_second=len(sent) / self._parameters.seconds,
            superseded=len(sent) - len(seen),
            latency=_summary(latency),
            histogram={"p50": since.quantile(0.5), "p99": since.quantile(0.99), "count": since.count},
            answered=_summary([ended - at for one in written for _, _, at, ended in one.updates]),
            syncs=since.syncs,
            cpu_cores={name: value / seconds for name, value in spent.items()},
            knft_mib=resident_mib(self._daemon.process.pid),
            wrong=[*self._lost_writes(written), *table_differences(self._cluster, self._folder, FLAGS)],
        )

    def _write(self, begin: float) -> list[WriterResult]:
        for writer in self._writers:
            assert writer.stdin is not None
            writer.stdin.write(f"{begin}\n".encode())
            writer.stdin.flush()
        outputs = [writer.communicate()[0] for writer in self._writers]
        assert not any(writer.returncode for writer in self._writers), "a writer failed"
        return [msgspec.json.decode(one, type=WriterResult) for one in outputs]

    def _lost_writes(self, written: list[WriterResult]) -> list[str]:
        """Return the slices for which the API server does not have the last write."""
        stored = {item["metadata"]["name"]: item for item in self._cluster.api.list("EndpointSlice")}
        expected = {f"churn-{index}": numbers for one in written for index, numbers in one.addresses.items()}
        return [
            f"{name} differs from its last write"
            for name, numbers in expected.items()
            if [item["addresses"][0] for item in stored[name]["endpoints"]] != [address(number) for number in numbers]
        ]

    def _wait_programmed(self) -> None:
        self._marker.write(ZONE, RANGES)
        self._marker.wait(self._daemon.check)

    def _cpu(self) -> dict[str, float]:
        servers = (self._daemon, self._cluster.apiserver, self._cluster.etcd_process)
        return {server.name: cpu_seconds(server.process.pid) for server in servers}

    def _writer(self, number: int) -> "subprocess.Popen[bytes]":
        parameters, path = self._parameters, self._cluster.keys.path
        rate = parameters.changes / parameters.each / parameters.writers
        plan = WriterPlan(
            ca=path("ca.crt"),
            certificate=path("admin.crt"),
            key=path("admin.key"),
            slices=list(range(number, parameters.services, parameters.writers)),
            endpoints=parameters.endpoints,
            first=number * _EACH_WRITER,
            rate=rate,
            each=parameters.each,
            seconds=parameters.seconds,
            delay=0.0 if parameters.together else number / parameters.writers / rate,
        )
        command = [sys.executable, "-m", "tests.cluster.churn.writer", msgspec.json.encode(plan).decode()]
        with self._cluster.namespace.entered():
            return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def _summary(values: list[float]) -> dict[str, float]:
    return {"p50": percentile(values, 0.5), "p99": percentile(values, 0.99), "longest": max(values)}
