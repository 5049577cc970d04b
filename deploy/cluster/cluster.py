"""Cluster: starts, uses and removes a cluster.

::

    cluster = Cluster(State(folder))
    cluster.up(make_plan(nodes=2))
    cluster.kubectl("get", "nodes")
    cluster.node("node1").machine.stop_process("kubelet")
    cluster.down()
"""

import json
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any

from deploy.cluster import forwarder, kubeadm, objects, processes
from deploy.cluster.control_plane import ControlPlane
from deploy.cluster.image_store import copy_image_store, discard_partial_store, make_image_store
from deploy.cluster.images import Images, make_images
from deploy.cluster.keys import ADMIN, Keys
from deploy.cluster.machine import Machine
from deploy.cluster.node import KUBE_PROXY, Node
from deploy.cluster.packages import Unpacked, unpack_packages
from deploy.cluster.plan import API_PORT, Plan, Proxy
from deploy.cluster.state import State, Tools
from deploy.programs.build import Programs, programs
from deploy.programs.errors import SetupError

_PROGRAMS = (
    *("keys", "pause", "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"),
    *("kubelet", "kubectl", "kube-proxy", "coredns", "agnhost"),
)
_BASE = processes.CHECKOUT / "deploy" / "kustomize" / "base"
_READY_SECONDS = 180


class Cluster:
    """A cluster, whose state is in a directory; another process can use and remove it."""

    def __init__(self, state: State, report: Callable[[str], None] = print) -> None:
        """Start nothing; ``report`` gets a line at each step."""
        self.state = state
        self._report = report
        self._started = time.monotonic()

    @cached_property
    def plan(self) -> Plan:
        """The plan of the running cluster."""
        return self.state.read_plan()

    @cached_property
    def programs(self) -> Programs:
        """The Go programs: those of the running cluster, or of the cache, built if they are missing."""
        tools = self.state.read_tools()
        return Programs(Path(tools.programs), tools.release) if tools else programs(_PROGRAMS)

    @cached_property
    def _packages(self) -> Unpacked:
        tools = self.state.read_tools()
        return Unpacked(Path(tools.packages), Path(tools.libraries)) if tools else unpack_packages()

    @cached_property
    def keys(self) -> Keys:
        """The keys and kubeconfigs."""
        return Keys(self.programs.path("keys"), self.state.keys)

    @cached_property
    def control_plane(self) -> ControlPlane:
        """The control plane."""
        return ControlPlane(self.state, self.plan, self.programs, self.keys)

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes."""
        tools = (self.programs, self._packages, self.keys)
        return tuple(Node(self.state, self.plan, node, tools) for node in self.plan.nodes)

    def node(self, name: str) -> Node:
        """Return a node by its name; raise SetupError if there is none."""
        found = self.plan.node(name)
        return next(node for node in self.nodes if node.plan == found)

    def up(self, plan: Plan, further_images: Sequence[Path] = ()) -> None:
        """Start a cluster, and wait until all pods are ready; raise SetupError if that fails, and remove it.

        ``further_images`` are OCI archives, whose file names change with their contents. One with the name of another
        image replaces that.
        """
        with self.state.locked():
            self.state.check_absent()
            self._step("programs, packages and images")
            images = make_images(self.programs, self._packages, with_kube_proxy=plan.has_kubeadm_kube_proxy)
            store = make_image_store((*images.archives, *further_images), self.programs, self._packages)
            self.state.create(plan, self._tools())
            try:
                self._start(images, store)
            except SetupError as error:
                kept = self._keep_logs()
                self._remove()
                text = str(error).replace(str(self.state.logs), str(kept))
                msg = f"{text}\nthe cluster was removed; its logs are in {kept}"
                raise SetupError(msg) from error
            except BaseException:
                self._remove()
                raise

    def _tools(self) -> Tools:
        return Tools(
            str(self.programs.folder), self.programs.release, str(self._packages.root), str(self._packages.libraries)
        )

    def _start(self, images: Images, store: Path) -> None:
        self._step("control plane and containerd")
        self.keys.create(self.plan)
        self._start_machines(store)
        self._step("kubelets")
        self._write_kubeconfig()
        self._apply_nodes()
        for node in self.nodes:
            node.start_kubelet()
            if node.plan.proxy is Proxy.KUBE_PROXY:
                node.start_kube_proxy()
        self._apply("coredns", objects.list_of(objects.coredns_objects(self.plan)))
        if self.plan.has_kubeadm_kube_proxy:
            self._apply("kube-proxy", objects.list_of(kubeadm.kube_proxy_objects(self.plan, self.programs.release)))
        else:
            self._apply_knft(images.knft_tag)
        self.wait_for_nodes()
        self._step("pods")
        self.wait_for_pods()
        for node in self.nodes:
            if node.plan.proxy.table:
                node.wait_for_table(node.plan.proxy.table)
        self._step("ready")

    def _start_machines(self, store: Path) -> None:
        """Start the control plane and the nodes at the same time."""
        self.control_plane.start_machine()
        with ThreadPoolExecutor(len(self.nodes) + 1) as pool:
            tasks = [pool.submit(self._start_node, node, store) for node in self.nodes]
            tasks.append(pool.submit(self.control_plane.start_components))
            for task in tasks:
                task.result()

    def _start_node(self, node: Node, store: Path) -> None:
        node.machine.folder.mkdir(parents=True)
        copy_image_store(store, node.containerd_folder)
        node.start_machine(self.control_plane)
        node.start_containerd()

    def _write_kubeconfig(self) -> None:
        """Start the forwarder, and write the kubeconfig that uses it."""
        port, log = forwarder.free_port(), self.state.logs / "forwarder.log"
        target = (str(self.control_plane.machine.pid), self.plan.api_host, str(API_PORT))
        processes.start([sys.executable, "-m", "deploy.cluster.forwarder", str(port), *target], log, self._forwarder)
        server = f"https://{forwarder.LOOPBACK}:{port}"
        self.keys.write_kubeconfig(self.state.kubeconfig, ADMIN, server)

    @property
    def _forwarder(self) -> Path:
        return self.state.folder / "forwarder.json"

    def _apply_nodes(self) -> None:
        nodes = objects.list_of(objects.node_object(node) for node in self.plan.nodes)
        self._apply("nodes", nodes, "--server-side", "--force-conflicts")

    def _apply(self, name: str, content: dict[str, Any], *flags: str) -> None:
        path = self.state.generated / f"{name}.json"
        path.write_text(json.dumps(content, indent=2))
        self.kubectl("apply", f"--filename={path}", *flags)

    def _apply_knft(self, tag: str) -> None:
        """Apply the kustomization of knft, also if no node has its label yet."""
        folder = self.state.generated / "knft"
        # A copy, because a kustomization refers to others by relative paths.
        shutil.copytree(_BASE, folder / "base")
        (folder / "config.yaml").write_text(json.dumps(objects.knft_configuration(self.plan), indent=2))
        kustomization = objects.knft_kustomization(self.plan, "base", tag)
        (folder / "kustomization.yaml").write_text(json.dumps(kustomization, indent=2))
        self.kubectl("apply", f"--kustomize={folder}")

    def wait_for_nodes(self) -> None:
        """Wait until all nodes are ready."""
        self.kubectl("wait", "--for=condition=Ready", "node", "--all", f"--timeout={_READY_SECONDS}s")

    def wait_for_pods(self) -> None:
        """Wait until the Service proxy's DaemonSet and CoreDNS are ready."""
        proxy = "kube-proxy" if self.plan.has_kubeadm_kube_proxy else "knft"
        for workload in (f"daemonset/{proxy}", "deployment/coredns"):
            self.kubectl("rollout", "status", workload, "--namespace=kube-system", f"--timeout={_READY_SECONDS}s")

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        """Run kubectl as the cluster's administrator; return its output. Raise SetupError if it fails."""
        command = [self.programs.path("kubectl"), f"--kubeconfig={self.keys.kubeconfig(ADMIN)}", *arguments]
        what = f"kubectl {' '.join(arguments[:2])}"
        return processes.run(self.control_plane.machine.network_command(*command), what, stdin)

    def set_proxy(self, name: str, proxy: Proxy) -> None:
        """Replace the Service proxy of a node, and wait until the new one is ready; the old one's tables are deleted.

        Connections through Services end: this is not how the proxy of a real node is replaced.
        """
        if self.plan.has_kubeadm_kube_proxy:
            msg = "the DaemonSet kube-proxy runs on all nodes: change it with kubectl (docs/operations/installation.md)"
            raise SetupError(msg)
        node = self.node(name)
        if KUBE_PROXY in node.machine.running_processes():
            node.machine.stop_process(KUBE_PROXY)
        label = f"{objects.PROXY_LABEL}={Proxy.KNFT}" if proxy is Proxy.KNFT else f"{objects.PROXY_LABEL}-"
        self.kubectl("label", "node", name, label, "--overwrite")
        if proxy is not Proxy.KNFT:
            pods = ("--namespace=kube-system", "--selector=k8s-app=knft", f"--field-selector=spec.nodeName={name}")
            self.kubectl("wait", "--for=delete", "pod", *pods, f"--timeout={_READY_SECONDS}s")
        node.delete_tables([table for each in Proxy if (table := each.table) not in ("", proxy.table)])
        if proxy is Proxy.KUBE_PROXY:
            node.start_kube_proxy()
        if proxy.table:
            node.wait_for_table(proxy.table)
        self.wait_for_pods()

    def machine(self, name: str) -> Machine:
        """Return the control plane's or a node's machine by its name; raise SetupError if there is none."""
        if name == self.control_plane.machine.name:
            return self.control_plane.machine
        return self.node(name).machine

    def down(self) -> None:
        """Remove everything of the cluster, however much of it was started."""
        with self.state.locked():
            self._remove()
            shutil.rmtree(self._failed_logs, ignore_errors=True)
        discard_partial_store()

    def _remove(self) -> None:
        """Remove nodes first: they would report the loss of the control plane."""
        processes.kill(self._forwarder)
        names = sorted(self.state.machines(), key=lambda name: name == "control-plane")
        with ThreadPoolExecutor(len(names) + 1) as pool:
            machines = [Machine(name, self.state.machine(name), self.state.logs) for name in names]
            for task in [pool.submit(machine.remove) for machine in machines]:
                task.result()
        self.state.remove()

    def _keep_logs(self) -> Path:
        shutil.rmtree(self._failed_logs, ignore_errors=True)
        shutil.copytree(self.state.logs, self._failed_logs)
        return self._failed_logs

    @property
    def _failed_logs(self) -> Path:
        """The logs of the last start that failed."""
        return self.state.folder.with_name(f"{self.state.folder.name}-failed-logs")

    def _step(self, name: str) -> None:
        """Report what begins, with the time since this object was made."""
        self._report(f"cluster: {time.monotonic() - self._started:5.1f} s  {name}")
