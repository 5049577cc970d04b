"""``python -m tests.cluster.bench.throughput`` measures established connections through each proxy, with iperf3.

A pod on the node sends to the cluster IP, a client outside the cluster to a NodePort and to a load balancer IP, each
with one stream and with many; the endpoint is on another node. TCP is measured in Gbit/s, and in thousands of packets a
second if each has one small segment; UDP in thousands of received packets a second, small and large ones. "No proxy" is
the endpoint's own address. All proxies are measured in turn, in several rounds and in random order. It fails if the
95 % confidence interval of knft's mean is below that of kube-proxy.
"""

import argparse
import itertools
import json
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import msgspec
from msgspec import Struct

from deploy.programs.build import programs
from deploy.programs.errors import SetupError
from tests.bench.machine import describe, load_at_end
from tests.bench.results import RESULTS_FOLDER
from tests.cluster.bench.endpoints import ENDPOINT_NETWORKS
from tests.cluster.bench.proxies import PROXIES
from tests.cluster.bench.proxy_names import IPTABLES, KNFT, NFTABLES
from tests.cluster.bench.sizes import Size
from tests.cluster.bench.testbed import Testbed, testbed
from tests.cluster.churn.numbered_endpoints import FIRST, address
from tests.support.lab.links import netlink
from tests.support.lab.namespace import Namespace
from tests.support.lab.plan import NODE
from tests.support.privilege import PrivilegeError, ensure_namespaces

NO_PROXY = "no proxy"
MEASURED = (NO_PROXY, NFTABLES, IPTABLES, KNFT)
FRONTENDS = ("cluster IP", "NodePort", "load balancer IP")
RESULTS_FILE = "throughput.json"
_NAME, _PORT, _NODE_PORT = "throughput", 5201, 30521
_ENDPOINT = address((10 << 24 | 255 << 16 | 1) - FIRST)
_CLUSTER_IP, _VIP = "10.96.250.1", "203.0.113.7"
_READY_SECONDS, _TRANSFER_TIMEOUT = 60.0, 30.0
_ATTEMPTS, _RETRY_SECONDS = 5, 0.5
_T_95 = (12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""Student's t for 95 %, two-sided, with 1 to 9 degrees of freedom."""


_MIN_SEGMENT, _TIMESTAMPS = 88, 12
"""The smallest maximum segment size that the kernel accepts, and the bytes of options that it includes."""
_NO_LIMIT = 65535
"""The segments in a packet by default (GSO_MAX_SEGS)."""


class Kind(Struct, frozen=True):
    """What is sent: iperf3's options, and the largest number of TCP segments in a packet.

    ``data_bytes`` is what a packet contains if TCP packets are counted. UDP packets always are.
    """

    label: str
    unit: str
    options: tuple[str, ...] = ()
    max_segments: int = _NO_LIMIT
    data_bytes: int = 0

    def value(self, end: dict[str, Any]) -> float:
        """Return Gbit/s, or thousands of received packets a second, from the end of iperf3's report."""
        if "-u" in self.options:
            total = end["sum"]
            return float(total["packets"] - total["lost_packets"]) / float(total["seconds"]) / 1e3
        bits_a_second = float(end["sum_received"]["bits_per_second"])
        return bits_a_second / 8 / self.data_bytes / 1e3 if self.data_bytes else bits_a_second / 1e9


def _small_segments() -> Kind:
    size = _MIN_SEGMENT - _TIMESTAMPS
    return Kind(f"TCP, {size} bytes", _PACKETS, ("-M", str(_MIN_SEGMENT)), max_segments=1, data_bytes=size)


_PACKETS = "1 000 packets/s"
KINDS = (
    Kind("TCP", "Gbit/s"),
    _small_segments(),
    *(Kind(f"UDP, {size} bytes", _PACKETS, ("-u", "-b", "0", "-l", str(size))) for size in (64, 1400)),
)


class Traffic(Struct, frozen=True):
    """One measurement: the frontend, what is sent, and the number of streams at the same time."""

    frontend: str
    kind: Kind
    streams: int

    def __str__(self) -> str:
        """Return it for a table."""
        streams = "1 stream" if self.streams == 1 else f"{self.streams} streams"
        return f"{self.frontend}, {self.kind.label}, {streams}, {self.kind.unit}"


class Interval(Struct, frozen=True):
    """The mean of samples, and half of its 95 % confidence interval."""

    mean: float
    half: float

    def is_below(self, other: "Interval") -> bool:
        """Tell whether the whole interval is below another one."""
        return self.mean + self.half < other.mean - other.half

    def __str__(self) -> str:
        """Return both for a table."""
        return f"{self.mean:.3g} ± {self.half:.2g}"


Samples = dict[str, dict[str, list[float]]]
"""The samples of each traffic, as text, and of each proxy."""


def interval(samples: list[float]) -> Interval:
    """Return the confidence interval of 2 to 10 samples."""
    return Interval(mean(samples), _T_95[len(samples) - 2] * stdev(samples) / len(samples) ** 0.5)


def main() -> None:
    """Measure, print a table, and write ``throughput.json``."""
    arguments = _parser().parse_args()
    if not shutil.which("iperf3"):
        sys.exit("throughput: iperf3 is missing; as root: sh tests/cluster/bench/install.sh")
    try:
        ensure_namespaces()
        release = programs().release
    except (PrivilegeError, SetupError) as problem:
        sys.exit(f"throughput: {problem}")
    machine = describe() | {"Kubernetes": release}
    samples: Samples = {}
    with testbed(endpoints=1) as bed:
        bed.fill(Size(arguments.services, 1))
        _create_service(bed)
        with _iperf_server(bed):
            order = random.Random(arguments.rounds)  # noqa: S311 - the same orders in each run
            for number in range(arguments.rounds):
                for name in order.sample(MEASURED, len(MEASURED)):
                    _measure_proxy(bed, name, arguments, samples)
                print(f"throughput: round {number + 1} of {arguments.rounds}", flush=True)
    arguments.results.mkdir(parents=True, exist_ok=True)
    results = {"machine": machine | load_at_end(), "samples": samples}
    (arguments.results / RESULTS_FILE).write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1))
    print(table(samples))
    problems = list(shortfalls(samples))
    sys.exit("\n".join(f"throughput: {problem}" for problem in problems) if problems else 0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.bench.throughput", description=__doc__)
    parser.add_argument("--rounds", type=int, choices=range(2, 11), default=10)
    parser.add_argument("--seconds", type=int, default=1, help="duration of each transfer")
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8], help="numbers of streams at the same time")
    parser.add_argument("--services", type=int, default=1000, help="Services beside the measured one")
    parser.add_argument("--results", type=Path, default=RESULTS_FOLDER, help="folder for the results")
    return parser


def table(samples: Samples) -> str:
    """Return the means with their confidence intervals as Markdown."""
    lines = [f"| | {' | '.join(MEASURED)} |", f"| --- {'| --- ' * len(MEASURED)}|"]
    for traffic, found in samples.items():
        lines.append(f"| {traffic} | {' | '.join(str(interval(found[name])) for name in MEASURED)} |")
    return "\n".join(lines)


def shortfalls(samples: Samples) -> Iterator[str]:
    """Yield where knft is slower than a mode of kube-proxy, beyond the confidence intervals."""
    for traffic, found in samples.items():
        own = interval(found[KNFT])
        for name in (NFTABLES, IPTABLES):
            if own.is_below(interval(found[name])):
                yield f"{traffic}: knft {own}, {name} {interval(found[name])}"


def _measure_proxy(bed: Testbed, name: str, arguments: argparse.Namespace, samples: Samples) -> None:
    with _running(bed, name):
        for traffic in itertools.starmap(Traffic, itertools.product(FRONTENDS, KINDS, arguments.streams)):
            client = _client(bed, traffic.frontend)
            server = _server_address(traffic.frontend, has_proxy=name != NO_PROXY)
            value = _transfer(client, server, traffic, arguments.seconds)
            samples.setdefault(str(traffic), {}).setdefault(name, []).append(value)


@contextmanager
def _running(bed: Testbed, name: str) -> Iterator[None]:
    """Run a proxy; at the end neither a process nor a rule is left."""
    if name == NO_PROXY:
        yield
        return
    process = PROXIES[name].process(bed.cluster, bed.folder / f"{name}-{time.monotonic_ns()}".replace(" ", "-"))
    process.start()
    try:
        deadline = time.monotonic() + _READY_SECONDS
        while bed.answering(0) is None:
            process.check()
            assert time.monotonic() < deadline, f"{name} does not serve"
        yield
    finally:
        process.close()
        bed.remove_rules()


def _create_service(bed: Testbed) -> None:
    """Create the measured Service, with one endpoint on the other node, and route its addresses to the node."""
    protocols = ("TCP", "UDP")
    ports = [{"name": each.lower(), "protocol": each, "port": _PORT, "nodePort": _NODE_PORT} for each in protocols]
    spec = {"type": "LoadBalancer", "clusterIP": _CLUSTER_IP, "ports": ports}
    service: dict[str, Any] = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": _NAME}, "spec": spec}
    created = bed.cluster.api.create(service)
    bed.cluster.api.replace(created | {"status": {"loadBalancer": {"ingress": [{"ip": _VIP}]}}}, "/status")
    endpoint_slice: Mapping[str, Any] = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": _NAME, "labels": {"kubernetes.io/service-name": _NAME}},
        "addressType": "IPv4",
        "ports": [{"name": each.lower(), "protocol": each, "port": _PORT} for each in protocols],
        "endpoints": [{"addresses": [_ENDPOINT], "conditions": {"ready": True}, "nodeName": "node-2"}],
    }
    bed.cluster.api.create(dict(endpoint_slice))
    with netlink(bed.outside) as link:
        link.add_routes(ENDPOINT_NETWORKS, gateway=NODE.lan)


def _client(bed: Testbed, frontend: str) -> Namespace:
    return bed.pod if frontend == "cluster IP" else bed.outside


def _server_address(frontend: str, *, has_proxy: bool) -> tuple[str, int]:
    if not has_proxy:
        return _ENDPOINT, _PORT
    return {
        "cluster IP": (_CLUSTER_IP, _PORT),
        "NodePort": (NODE.lan.ipv4, _NODE_PORT),
        "load balancer IP": (_VIP, _PORT),
    }[frontend]


@contextmanager
def _iperf_server(bed: Testbed) -> Iterator[None]:
    process = bed.remote.popen(["iperf3", "-s", "-B", _ENDPOINT, "-p", str(_PORT)], stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _transfer(client: Namespace, server: tuple[str, int], traffic: Traffic, seconds: int) -> float:
    """Return Gbit/s, or thousands of received packets a second."""
    host, port = server
    command = ["iperf3", "-c", host, "-p", str(port), "-t", str(seconds), "-P", str(traffic.streams), "--json"]
    with netlink(client) as link:
        link.limit_segments("eth0", traffic.kind.max_segments)
    for _ in range(_ATTEMPTS):
        process = client.popen([*command, *traffic.kind.options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        output, _ = process.communicate(timeout=seconds + _TRANSFER_TIMEOUT)
        found = json.loads(output)
        if "error" not in found and process.returncode == 0:
            return traffic.kind.value(found["end"])
        time.sleep(_RETRY_SECONDS)  # The server needs a moment after each UDP transfer until it listens again.
    msg = f"{traffic} to {host}:{port}: {found.get('error')}"
    raise AssertionError(msg)


if __name__ == "__main__":
    main()
