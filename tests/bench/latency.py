"""The time to open a TCP connection from outside, through the node's rules, to a pod on the node.

Each ruleset has its own lab in this process. The benchmark alternates between the labs, so that other load of the
machine affects all of them. Client and server share a thread, so the time does not include accept().
"""

import selectors
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Self

from msgspec import Struct

from tests.bench.cluster import PORT, TARGET_PORT, Cluster, Shape, endpoint_number
from tests.bench.manifests import first_changes
from tests.bench.measure import percentile
from tests.bench.peers.program import Program
from tests.bench.peers.registry import PEERS
from tests.bench.record import Record, emit
from tests.bench.timed_knft import TimedKnft
from tests.support.lab.topology import Host, Lab

WITHOUT_RULES = "no rules"
FIRST_SERVICE, LAST_SERVICE = "connecting to the first Service", "connecting to the last Service"
_PODS = 5
_DIALS_PER_TURN = 100
_TIMEOUT = 60.0
# Closing resets the connection: no TIME_WAIT on either side.
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Ruleset(Struct, frozen=True):
    """The rules of a proxy for a cluster."""

    proxy: str
    shape: Shape


class LatencyTarget(Struct, frozen=True):
    """A frontend in a lab, and the ruleset that serves it."""

    ruleset: Ruleset
    label: str
    lab: Lab
    address: str
    port: int


def measure_latency(rulesets: tuple[Ruleset, ...], dials: int) -> None:
    """Connect ``dials`` times to the first and last Service of each ruleset, or to a pod without rules."""
    with ExitStack() as stack:
        targets = [target for ruleset in rulesets for target in stack.enter_context(_prepared(ruleset))]
        seconds: dict[int, list[float]] = {index: [] for index in range(len(targets))}
        servers = stack.enter_context(_Servers(targets))
        for _ in range(max(1, dials // _DIALS_PER_TURN)):
            for index, target in enumerate(targets):
                seconds[index] += servers.dial(target, min(dials, _DIALS_PER_TURN))
    for index, target in enumerate(targets):
        found = seconds[index]
        values = {"p50_us": percentile(found, 0.5) * 1e6, "p99_us": percentile(found, 0.99) * 1e6, "dials": len(found)}
        emit(Record(target.ruleset.proxy, target.ruleset.shape.name, target.label, values))


@contextmanager
def _prepared(ruleset: Ruleset) -> Iterator[list[LatencyTarget]]:
    """Build a lab, load a proxy's rules on its node, and yield the targets there."""
    with Lab(local_pods=_PODS, remote_pods=0) as lab:
        pods = lab.pods("node")
        if ruleset.proxy == WITHOUT_RULES:
            yield [LatencyTarget(ruleset, FIRST_SERVICE, lab, pods[0].ipv4, TARGET_PORT)]
            return
        cluster = Cluster(ruleset.shape, tuple(endpoint_number(pod.ipv4) for pod in pods))
        with lab.host("node").namespace.entered():
            _load(ruleset.proxy, cluster)
        yield [
            LatencyTarget(ruleset, label, lab, cluster.service(number).cluster_ip, PORT)
            for label, number in ((FIRST_SERVICE, 0), (LAST_SERVICE, cluster.size - 1))
        ]


def _load(proxy: str, cluster: Cluster) -> None:
    if proxy == "knft":
        TimedKnft().sync(list(first_changes(cluster)))
    else:
        peer = PEERS[proxy]
        Program(peer.command).load(peer.layout().load(cluster))


class _Servers:
    """A listening socket in each pod of each lab."""

    def __init__(self, targets: list[LatencyTarget]) -> None:
        self._stack = ExitStack()
        labs = {id(target.lab): target.lab for target in targets}
        self._selectors = {key: self._listen(lab) for key, lab in labs.items()}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _listen(self, lab: Lab) -> selectors.BaseSelector:
        selector = self._stack.enter_context(selectors.DefaultSelector())
        for pod in lab.pods("node"):
            with pod.namespace.entered():
                listening = self._stack.enter_context(socket.create_server(("", TARGET_PORT), backlog=16))
            selector.register(listening, selectors.EVENT_READ, listening)
        return selector

    def dial(self, target: LatencyTarget, count: int) -> Iterator[float]:
        """Connect ``count`` times from outside, and yield the seconds of each connection."""
        client: Host = target.lab.host("outside")
        selector = self._selectors[id(target.lab)]
        with client.namespace.entered():
            for _ in range(count):
                with socket.socket() as dialling:
                    dialling.settimeout(_TIMEOUT)
                    dialling.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
                    started = time.perf_counter()
                    dialling.connect((target.address, target.port))
                    yield time.perf_counter() - started
                    for key, _ in selector.select(_TIMEOUT):
                        key.data.accept()[0].close()
