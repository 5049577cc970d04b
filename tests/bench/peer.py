"""Measures a peer, a layout of kube-proxy: loading a cluster, and changes as kube-proxy would send them."""

import time
from collections.abc import Iterator

from msgspec import Struct

from tests.bench.changes import kinds, steps
from tests.bench.cluster import Cluster, Shape
from tests.bench.measure import children_cpu_seconds, children_peak_mib, kernel_kib, percentile
from tests.bench.peers.layout import Layout
from tests.bench.peers.program import Program
from tests.bench.peers.registry import Peer
from tests.bench.record import FULL, MEMORY, Record, emit


class Limits(Struct, frozen=True):
    """Limits for each kind of change, and the time for kernel memory to settle."""

    syncs: int
    seconds: float
    settle_seconds: float


def measure_peer(name: str, peer: Peer, shape: Shape, limits: Limits) -> None:
    """Measure loading the cluster, changes of each kind, and memory."""
    layout, program, cluster = peer.layout(), Program(peer.command), Cluster(shape)
    kernel_before = kernel_kib(limits.settle_seconds)
    cpu = children_cpu_seconds()
    total = program.load(layout.load(cluster))
    values = {"total_s": total, "cpu_s": children_cpu_seconds() - cpu, "peak_mib": children_peak_mib()}
    emit(Record(name, shape.name, FULL, values))
    kernel_rise = kernel_kib(limits.settle_seconds) - kernel_before
    for kind in kinds(shape):
        cpu = children_cpu_seconds()
        seconds = list(_changes(layout, program, cluster, kind, limits))
        values = {
            "p50_ms": percentile(seconds, 0.5) * 1e3,
            "p99_ms": percentile(seconds, 0.99) * 1e3,
            "max_ms": max(seconds) * 1e3,
            "cpu_ms": (children_cpu_seconds() - cpu) / len(seconds) * 1e3,
            "syncs": float(len(seconds)),
        }
        emit(Record(name, shape.name, kind, values))
    loaded = kernel_kib(limits.settle_seconds)
    Program(peer.clearing).load(peer.clear)
    memory = {"kernel_rise_mib": kernel_rise / 1024, "kernel_mib": (loaded - kernel_kib(limits.settle_seconds)) / 1024}
    emit(Record(name, shape.name, MEMORY, memory))


def _changes(layout: Layout, program: Program, cluster: Cluster, kind: str, limits: Limits) -> Iterator[float]:
    """Yield the seconds of each change; the removals that kube-proxy makes a second later are made but not measured."""
    deadline = time.monotonic() + limits.seconds
    for step in steps(cluster, kind, limits.syncs):
        sent = layout.change(step)
        yield program.change(sent.now)
        if sent.later:
            program.change(sent.later)
        if time.monotonic() > deadline:
            return
