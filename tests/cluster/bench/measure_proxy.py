"""Measures one proxy with the Services that the API server has."""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import median

import urllib3

from tests.bench.measure import percentile
from tests.bench.process_tree import cpu_seconds, is_busy, pss_mib, resident_mib
from tests.bench.record import ENDED, Record
from tests.cluster.bench.connections import ConnectionFailedError
from tests.cluster.bench.endpoints import spread
from tests.cluster.bench.evidence import kernel_state
from tests.cluster.bench.figures import BULK, CHANGE, CONNECTION, IDLE, LOAD, MEMORY, RESTART, START
from tests.cluster.bench.proxies import PROXIES
from tests.cluster.bench.sizes import BenchPlan, Repetitions
from tests.cluster.bench.testbed import Testbed
from tests.cluster.kube_proxy import HEALTH_PORT, get
from tests.cluster.server_process import ServerProcess

_PROBED, _CHANGED_WHILE_DOWN = 16, 3
_BULK = 200
_POLL_SECONDS = 0.005
# More than the minimum interval between two syncs: kube-proxy's default is 1 s.
_PAUSE_SECONDS = 1.2
_QUIET_SECONDS, _QUIET_CPU, _QUIET_TIMEOUT = 0.3, 0.005, 60.0
_IDLE_SECONDS = 10


class ProxyMeasurement:
    """The measurements of one proxy; they are taken while it runs on the testbed's node."""

    def __init__(self, testbed: Testbed, name: str, shape: str, plan: BenchPlan, results: Path) -> None:
        """Start nothing yet; ``shape`` is the name of the size, and ``results`` the folder for evidence."""
        self._testbed, self._plan, self._results = testbed, plan, results
        self._name, self._shape = name, shape
        folder = testbed.folder / f"{name}-{shape}".replace(" ", "-")
        self._process: ServerProcess = PROXIES[name].process(testbed.cluster, folder)
        self._watch = PROXIES[name].watch
        # The index of the Service whose endpoint is replaced next.
        self._next = 0
        # The share of a core that the proxy uses without any change, in most seconds.
        self._idle_share = 0.0

    def records(self) -> Iterator[Record]:
        """Measure; yield a record for each sample. At the end no process and no rule is left.

        A proxy that ends, that takes too long or whose connections fail gets a record with the reason.
        """
        try:
            yield from self._records()
        except (AssertionError, TimeoutError) as error:
            # Of a proxy that has exited, the message ends with its log.
            first, *log = str(error).splitlines()
            yield Record(self._name, self._shape, ENDED, note=" ".join((first, *log[-1:])))
        except ConnectionFailedError as error:
            yield Record(self._name, self._shape, ENDED, note=f"{error}; evidence: {self._keep_evidence().name}")
        finally:
            self._process.close()
            self._testbed.remove_rules()

    def _records(self) -> Iterator[Record]:
        yield self._load()
        yield from self._repeated(START, self._plan.starts, self._start_again)
        yield self._record(MEMORY, self._memory("after_start"))
        self._check_services()
        yield self._record(IDLE, self._idle())
        yield from self._repeated(CHANGE, self._plan.changes, self._change)
        yield from self._repeated(BULK, self._plan.bulks, self._bulk)
        yield self._record(CONNECTION, self._connections())
        yield self._record(MEMORY, self._memory("after_changes"))
        self._check_services()
        yield from self._repeated(RESTART, self._plan.restarts, self._restart)
        self._check_services()
        yield self._load()

    def _keep_evidence(self) -> Path:
        self._results.mkdir(parents=True, exist_ok=True)
        file = self._results / f"{self._name}-{self._shape}-failed.txt".replace(" ", "-")
        file.write_text(kernel_state(self._testbed.node))
        return file

    def _repeated(self, measure: str, wanted: Repetitions, sample: Callable[[], dict[str, float]]) -> Iterator[Record]:
        started, samples = time.monotonic(), 0
        while not wanted.is_enough(samples, time.monotonic() - started):
            yield self._record(measure, sample())
            samples += 1

    def _record(self, measure: str, values: dict[str, float]) -> Record:
        return Record(self._name, self._shape, measure, values)

    def _load(self) -> Record:
        minute, _, _ = os.getloadavg()
        return self._record(LOAD, {"of_a_core": minute / (os.cpu_count() or 1)})

    def _start_again(self) -> dict[str, float]:
        """Start without rules."""
        if self._process.is_running:
            self._process.stop()
            self._testbed.remove_rules()
        numbers = self._testbed.endpoints.numbers
        return self._start({index: numbers(index) for index in spread(self._testbed.endpoints.services, _PROBED)})

    def _restart(self) -> dict[str, float]:
        """Stop, replace all endpoints of some Services, and start with the old rules."""
        self._process.stop()
        indexes = spread(self._testbed.endpoints.services, _CHANGED_WHILE_DOWN)
        total = sum(len(self._testbed.endpoints.numbers(index)) for index in indexes)
        new = self._testbed.endpoints.replace(total, indexes)
        self._testbed.write(list(new))
        return self._start(new)

    def _start(self, expected: Mapping[int, list[int]]) -> dict[str, float]:
        """Start; return CPU time and time until endpoints of all these Services answer and the proxy is healthy."""
        started = time.monotonic()
        self._process.start()
        for index, numbers in expected.items():
            while self._testbed.answering(index) not in numbers:
                self._wait_further(started)
        while not self._is_healthy():
            self._wait_further(started)
        ready, cpu = time.monotonic() - started, self._cpu()
        self._testbed.delete_conntrack_entries()
        self._settle()
        return {"cpu_s": cpu, "ready_s": ready, "settled_cpu_s": self._cpu()}

    def _wait_further(self, started: float) -> None:
        self._process.check()
        if time.monotonic() - started > self._plan.ready_seconds:
            msg = f"not ready after {self._plan.ready_seconds:g} s and {self._cpu():.0f} s of CPU"
            raise TimeoutError(msg)
        time.sleep(_POLL_SECONDS)

    def _is_healthy(self) -> bool:
        try:
            return get(self._testbed.node, HEALTH_PORT, "/healthz").status == 200
        except urllib3.exceptions.HTTPError:
            return False

    def _change(self) -> dict[str, float]:
        """Replace one endpoint of the next Service."""
        found = self._replaced(1)
        return {"cpu_ms": found["cpu_s"] * 1000, "in_force_ms": found["in_force_s"] * 1000}

    def _bulk(self) -> dict[str, float]:
        """Replace 200 endpoints at once, one of each Service if there are 200 Services."""
        return self._replaced(_BULK)

    def _replaced(self, total: int) -> dict[str, float]:
        """Replace endpoints; return the CPU time until nothing more is done, and the time from the first write.

        The CPU time is without that which the idle process uses in the same time.
        """
        services = self._testbed.endpoints.services
        new = self._testbed.endpoints.replace(total, [(self._next + step) % services for step in range(services)])
        self._next += len(new)
        with self._watch(self._testbed.node, [number for numbers in new.values() for number in numbers]) as watch:
            cpu, started = self._cpu(), time.monotonic()
            self._testbed.write(list(new))
            written = time.monotonic()
            in_force = watch.wait(self._plan.ready_seconds)
        time.sleep(_PAUSE_SECONDS)
        self._settle()
        idle = (time.monotonic() - started) * self._idle_share
        return {
            "cpu_s": max(0.0, self._cpu() - cpu - idle),
            "in_force_s": in_force - started,
            "written_s": written - started,
        }

    def _idle(self) -> dict[str, float]:
        """Return the CPU time of a second. What is done only once in a while is no part of the share."""
        begun = before = self._cpu()
        shares: list[float] = []
        for _ in range(_IDLE_SECONDS):
            time.sleep(1)
            now = self._cpu()
            shares.append(now - before)
            before = now
        self._idle_share = median(shares)
        return {"cpu_ms_a_s": (before - begun) / _IDLE_SECONDS * 1000, "median_ms_a_s": self._idle_share * 1000}

    def _connections(self) -> dict[str, float]:
        through, direct = self._testbed.dial_services(self._plan.connections)
        return {
            "p50_us": percentile(through, 0.5) * 1e6,
            "p99_us": percentile(through, 0.99) * 1e6,
            "direct_p50_us": percentile(direct, 0.5) * 1e6,
            "count": len(through),
        }

    def _check_services(self) -> None:
        wrong = self._testbed.wrong_service()
        if wrong is not None:
            msg = f"Service number {wrong} is not answered by its endpoints"
            raise ConnectionFailedError(msg)

    def _settle(self) -> None:
        """Wait until the proxy is idle; give up after a minute."""
        deadline, before = time.monotonic() + _QUIET_TIMEOUT, self._cpu()
        while time.monotonic() < deadline:
            time.sleep(_QUIET_SECONDS)
            now = self._cpu()
            # On a busy machine, a process that waits for a CPU uses none either.
            if now - before < _QUIET_CPU and not is_busy(self._process.process.pid):
                return
            before = now

    def _cpu(self) -> float:
        return cpu_seconds(self._process.process.pid)

    def _memory(self, moment: str) -> dict[str, float]:
        pid = self._process.process.pid
        return {f"{moment}_mib": resident_mib(pid), f"{moment}_pss_mib": pss_mib(pid)}
