"""The faults and neighbours: what each does while clients connect. The docstring of each is its description."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from msgspec import Struct

from deploy.cluster import objects as cluster_objects
from deploy.cluster.control_plane import API_SERVER, CONTROLLER_MANAGER, SCHEDULER
from deploy.cluster.node import CONTAINERD, KUBELET
from deploy.cluster.plan import Proxy
from tests.faults import objects
from tests.faults.certificates import replace_authority
from tests.faults.load_balancer import running_metallb
from tests.faults.objects import MANY, WEB
from tests.faults.places import load_balancer_places, places
from tests.faults.released_image import RELEASED_POD, released_images
from tests.faults.testbed import SECONDS, SYSTEM, Testbed
from tests.faults.traffic import Place
from tests.support.metallb import metallb_images
from tests.support.processes import processes_of_pod

_CONTROL_SECONDS = 20.0


class Options(Struct, frozen=True):
    """The sizes of the faults."""

    api_seconds: float = 600.0
    """How long the API server is away."""
    pods: int = 300
    """How many pods are rolled under load."""


def _nothing(_testbed: Testbed, _options: Options) -> None:
    """nothing: the control"""
    # Nothing reports that nothing happens.
    time.sleep(_CONTROL_SECONDS)


def _kill_kubelets(testbed: Testbed, _options: Options) -> None:
    """the kubelets of all nodes are killed, and start again"""
    _kill_on_all_nodes(testbed, KUBELET)


def _kill_containerds(testbed: Testbed, _options: Options) -> None:
    """containerd is killed on all nodes, and starts again"""
    _kill_on_all_nodes(testbed, CONTAINERD)


def _kill_on_all_nodes(testbed: Testbed, process: str) -> None:
    for node in testbed.cluster.nodes:
        node.machine.signal_process(process, signal.SIGKILL)
    testbed.wait_until_nodes_work()


def _kill_knft(testbed: Testbed, _options: Options) -> None:
    """knft's processes are killed in its pods on all nodes; the kubelets start the containers again"""
    pods = testbed.knft_pods()
    for pod in pods:
        for pid in processes_of_pod(pod["metadata"]["uid"]):
            with suppress(OSError):
                if b"\0/usr/bin/knft\0" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)
    testbed.wait_for_knft(pods)


def _evict_knft(testbed: Testbed, _options: Options) -> None:
    """knft's pods are evicted from all nodes; the DaemonSet creates others"""
    pods = testbed.knft_pods()
    for name in (pod["metadata"]["name"] for pod in pods):
        metadata = {"name": name, "namespace": SYSTEM}
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
        path = f"/api/v1/namespaces/{SYSTEM}/pods/{name}/eviction"
        testbed.cluster.kubectl("create", f"--raw={path}", "--filename=-", stdin=json.dumps(eviction))
    testbed.wait_for_knft(pods)


def _stop_api_server(testbed: Testbed, options: Options) -> None:
    """the API server is killed, and started again ten minutes later"""
    control_plane = testbed.cluster.control_plane
    # With leader election, as clusters have it, they exit without an API server. A controller manager that goes on
    # would report all nodes as not ready when the API server is back, before they can renew their leases.
    for name in (CONTROLLER_MANAGER, SCHEDULER):
        control_plane.stop_component(name)
    control_plane.stop_component(API_SERVER, signal.SIGKILL)
    time.sleep(options.api_seconds)
    control_plane.start_component(API_SERVER)
    control_plane.wait_until_ready()
    for name in (CONTROLLER_MANAGER, SCHEDULER):
        control_plane.start_component(name)
    testbed.wait_until_nodes_work()


def _replace_certificates(testbed: Testbed, _options: Options) -> None:
    """the cluster's CA gets a successor, which signs a new certificate of the API server"""
    replace_authority(testbed)
    testbed.wait_until_nodes_work()


def _drain_node(testbed: Testbed, _options: Options) -> None:
    """a node is drained, its machine killed, its Node deleted; both are created again"""
    name = testbed.changed.plan.name
    flags = ("--ignore-daemonsets", "--delete-emptydir-data", "--force", f"--timeout={SECONDS:.0f}s")
    testbed.cluster.kubectl("drain", name, *flags)
    testbed.changed.kill()
    testbed.cluster.kubectl("delete", "node", name)
    testbed.apply([cluster_objects.node_object(testbed.changed.plan)])
    _start_node(testbed)


def _kill_node(testbed: Testbed, _options: Options) -> None:
    """a node loses its power with its pods, and starts again"""
    pods = testbed.pods_of_node(testbed.changed.plan.name)
    assert any(name.startswith(f"{WEB}-") for name in pods), f"no server runs on {testbed.changed.plan.name}"
    testbed.killed |= dict.fromkeys(pods, time.time())
    testbed.changed.kill()
    _start_node(testbed)


def _start_node(testbed: Testbed) -> None:
    testbed.changed.start_machine(testbed.cluster.control_plane)
    testbed.changed.start_containerd()
    testbed.changed.start_kubelet()
    testbed.wait_until_nodes_work()
    testbed.wait_for_knft()
    testbed.wait_for_rollout(f"deployment/{WEB}")


def _downgrade(testbed: Testbed, _options: Options) -> None:
    """knft's image is replaced by that of the last release, which has another table layout"""
    testbed.kubectl("patch", "daemonset", "knft", f"--patch={json.dumps(RELEASED_POD)}", namespace=SYSTEM)
    testbed.wait_for_knft()


def _upgrade(testbed: Testbed, _options: Options) -> None:
    """knft's image is replaced by this version's, which adopts the tables of the last release"""
    testbed.kubectl("rollout", "undo", "daemonset", "knft", namespace=SYSTEM)
    testbed.wait_for_knft()


def _roll_many(testbed: Testbed, _options: Options) -> None:
    """all pods of a large Deployment are replaced, a few at a time; --pods is their number"""
    testbed.roll(f"deployment/{MANY}")


def _roll_beside_kube_proxy(testbed: Testbed, options: Options) -> None:
    """knft on one node, kube-proxy on the others; all pods of the Service are replaced, and knft is killed"""
    testbed.roll(f"deployment/{WEB}")
    _kill_knft(testbed, options)


def _roll_behind_metallb(testbed: Testbed, options: Options) -> None:
    """MetalLB announces the Service's addresses; all its pods are replaced, and knft is killed"""
    testbed.roll(f"deployment/{WEB}")
    _kill_knft(testbed, options)


Environment = Callable[[Testbed, Options], AbstractContextManager[Mapping[str, Place]]]


@contextmanager
def _web(testbed: Testbed, _options: Options) -> Iterator[Mapping[str, Place]]:
    yield places(testbed)


@contextmanager
def _spread(testbed: Testbed, _options: Options) -> Iterator[Mapping[str, Place]]:
    """Replace all servers first, so that the changed node has some of them: a drained node has none."""
    testbed.roll(f"deployment/{WEB}")
    yield places(testbed)


@contextmanager
def _upgraded_afterwards(testbed: Testbed, options: Options) -> Iterator[Mapping[str, Place]]:
    try:
        yield places(testbed)
    finally:
        _upgrade(testbed, options)


@contextmanager
def _downgraded(testbed: Testbed, options: Options) -> Iterator[Mapping[str, Place]]:
    _downgrade(testbed, options)
    yield places(testbed)


@contextmanager
def _many(testbed: Testbed, options: Options) -> Iterator[Mapping[str, Place]]:
    testbed.apply(objects.many_servers(options.pods))
    testbed.wait_for_rollout(f"deployment/{MANY}")
    try:
        yield places(testbed, MANY)
    finally:
        testbed.kubectl("delete", f"deployment/{MANY}", f"service/{MANY}")
        testbed.kubectl("wait", "--for=delete", "pod", f"--selector=app={MANY}", f"--timeout={SECONDS:.0f}s")


@contextmanager
def _kube_proxy_beside(testbed: Testbed, _options: Options) -> Iterator[Mapping[str, Place]]:
    nodes = [node.plan.name for node in (testbed.changed, testbed.last)]
    for name in nodes:
        testbed.cluster.set_proxy(name, Proxy.KUBE_PROXY)
    try:
        yield places(testbed)
    finally:
        for name in nodes:
            testbed.cluster.set_proxy(name, Proxy.KNFT)


@contextmanager
def _metallb(testbed: Testbed, _options: Options) -> Iterator[Mapping[str, Place]]:
    with running_metallb(testbed) as addresses:
        yield load_balancer_places(testbed, addresses)


def _no_images() -> tuple[Path, ...]:
    return ()


class Fault(Struct, frozen=True):
    """A fault; ``environment`` prepares the cluster for it, returns the clients, and cleans up."""

    name: str
    make: Callable[[Testbed, Options], None]
    environment: Environment = _web
    images: Callable[[], tuple[Path, ...]] = _no_images
    """Returns the archives of further images that the nodes need."""

    @property
    def text(self) -> str:
        """What happens."""
        return (self.make.__doc__ or "").strip()


FAULTS = (
    Fault("nothing", _nothing),
    Fault("kubelet-killed", _kill_kubelets),
    Fault("containerd-killed", _kill_containerds),
    Fault("knft-killed", _kill_knft),
    Fault("knft-evicted", _evict_knft),
    Fault("node-drained", _drain_node, _spread),
    Fault("node-killed", _kill_node, _spread),
    Fault("knft-downgraded", _downgrade, _upgraded_afterwards, released_images),
    Fault("knft-upgraded", _upgrade, _downgraded, released_images),
    Fault("kube-proxy-beside", _roll_beside_kube_proxy, _kube_proxy_beside),
    Fault("metallb-beside", _roll_behind_metallb, _metallb, metallb_images),
    Fault("pods-rolled", _roll_many, _many),
    Fault("api-server-away", _stop_api_server),
    Fault("certificates-replaced", _replace_certificates),
)
