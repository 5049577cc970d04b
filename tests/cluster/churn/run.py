"""One run: a cluster, knft at one minimum sync interval, writers at work, and what has come of it."""

import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import msgspec
from msgspec import Struct

from tests.bench.measure import percentile, resident_mib
from tests.cluster.applier import Applier
from tests.cluster.churn.commit_listener import CommitListener
from tests.cluster.churn.histogram import scrape_histogram
from tests.cluster.churn.numbered_endpoints import address, service
from tests.cluster.churn.writer import WriterPlan, WriterResult
from tests.cluster.cluster import Cluster
from tests.cluster.expected_tables import table_differences
from tests.cluster.fault_stage import FLAGS, RANGES, ZONE
from tests.cluster.knft_process import KnftProcess
from tests.cluster.marker import Marker
from tests.cluster.service_account import ServiceAccount
from tests.support.lab.namespace import Namespace
from tests.support.processes import library_processes
from tests.support.scenario import Scenario

_EACH_WRITER = 1 << 20
"""So many numbers has each writer for its changes."""


class ChurnParameters(Struct, frozen=True):
    """How much: ``changes`` endpoints a second, ``each`` with one update of a slice; each Service has one slice."""

    services: int
    endpoints: int
    changes: int
    each: int
    writers: int
    seconds: float


class ChurnResult(Struct, frozen=True):
    """What one run measured; times in seconds.

    ``superseded`` changes were replaced before a sync could put them in force. ``latency`` is that of all others, and
    ``histogram`` what knft's own metric says; ``wrong`` is what was lost, or is not in force as it was written last.
    """

    interval: str
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
    """A context manager: everything is up and in force when it is entered, and gone when it is left."""

    def __init__(self, folder: Path, extent: ChurnParameters, interval: str) -> None:
        """Prepare to measure with ``--min-sync-period`` at ``interval``; files go to ``folder``."""
        self._folder, self._extent, self._interval = folder, extent, interval
        self._open = ExitStack()

    def __enter__(self) -> Self:
        """Start a cluster, knft, and the writers, whose slices are in force then."""
        with ExitStack() as stack:
            node = Namespace.create("churn")
            stack.callback(node.close)
            self._cluster = cluster = stack.enter_context(Cluster(node, self._folder))
            Applier(cluster).apply(Scenario("", [], ()).manifests())
            for index in range(self._extent.services):
                cluster.api.create(service(index))
            self._marker = Marker(cluster.api, node)
            flags = (*FLAGS, f"--min-sync-period={self._interval}", "-v=0")
            self._follower = KnftProcess(cluster, ServiceAccount(cluster), self._folder / "knft", *flags)
            stack.callback(self._follower.close)
            self._follower.start()
            self._writers = [self._writer(number) for number in range(self._extent.writers)]
            for writer in self._writers:
                stack.callback(writer.kill)
            for writer in self._writers:
                assert writer.stdout is not None
                assert writer.stdout.readline() == b"ready\n"
            self._until_in_force()
            self._open = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """End everything."""
        self._open.close()

    def measure(self) -> ChurnResult:
        """Have the writers write, and return what has come of it."""
        before, used = scrape_histogram(self._cluster.namespace), self._cpu()
        with CommitListener(self._cluster.namespace, self._folder / "heard") as hearing:
            begin = time.time() + 1
            written = self._write(begin)
            seconds = time.time() - begin
            spent = {name: now - used[name] for name, now in self._cpu().items()}
            self._until_in_force()
        since = scrape_histogram(self._cluster.namespace).since(before)
        sent = {first + more: at for one in written for first, many, at, _ in one.updates for more in range(many)}
        heard = hearing.first_seen(sent)
        latency = [moment - sent[number] for number, moment in heard.items()]
        return ChurnResult(
            interval=self._interval,
            changes=len(sent),
            changes_a_second=len(sent) / self._extent.seconds,
            superseded=len(sent) - len(heard),
            latency=_summary(latency),
            histogram={"p50": since.quantile(0.5), "p99": since.quantile(0.99), "count": since.count},
            answered=_summary([ended - at for one in written for _, _, at, ended in one.updates]),
            syncs=since.syncs,
            cpu_cores={name: value / seconds for name, value in spent.items()},
            knft_mib=resident_mib(self._follower.process.pid),
            wrong=[*self._lost(written), *table_differences(self._cluster, self._folder, FLAGS)],
        )

    def _write(self, begin: float) -> list[WriterResult]:
        for writer in self._writers:
            assert writer.stdin is not None
            writer.stdin.write(f"{begin}\n".encode())
            writer.stdin.flush()
        said = [writer.communicate()[0] for writer in self._writers]
        assert not any(writer.returncode for writer in self._writers), "a writer has failed"
        return [msgspec.json.decode(one, type=WriterResult) for one in said]

    def _lost(self, written: list[WriterResult]) -> list[str]:
        """Return the slices that the API server does not hold as they were written last."""
        held = {item["metadata"]["name"]: item for item in self._cluster.api.list("EndpointSlice")}
        expected = {f"churn-{index}": numbers for one in written for index, numbers in one.addresses.items()}
        return [
            f"{name} is not as it was written last"
            for name, numbers in expected.items()
            if [item["addresses"][0] for item in held[name]["endpoints"]] != [address(number) for number in numbers]
        ]

    def _until_in_force(self) -> None:
        self._marker.write(ZONE, RANGES)
        self._marker.wait(self._follower.check)

    def _cpu(self) -> dict[str, float]:
        knft = self._follower.process.pid
        servers = {"kube-apiserver": self._cluster.apiserver, "etcd": self._cluster.etcd_process}
        own = _cpu_seconds(knft) + sum(map(_cpu_seconds, library_processes(knft)))
        return {"knft": own} | {name: _cpu_seconds(one.process.pid) for name, one in servers.items()}

    def _writer(self, number: int) -> "subprocess.Popen[bytes]":
        extent, path = self._extent, self._cluster.keys.path
        plan = WriterPlan(
            ca=path("ca.crt"),
            certificate=path("admin.crt"),
            key=path("admin.key"),
            slices=list(range(number, extent.services, extent.writers)),
            endpoints=extent.endpoints,
            first=number * _EACH_WRITER,
            rate=extent.changes / extent.each / extent.writers,
            each=extent.each,
            seconds=extent.seconds,
        )
        command = [sys.executable, "-m", "tests.cluster.churn.writer", msgspec.json.encode(plan).decode()]
        with self._cluster.namespace.entered():
            return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def _summary(values: list[float]) -> dict[str, float]:
    return {"p50": percentile(values, 0.5), "p99": percentile(values, 0.99), "longest": max(values)}


def _cpu_seconds(pid: int) -> float:
    """Return the processor time of all threads of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
