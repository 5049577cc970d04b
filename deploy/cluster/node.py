"""A node: containerd and the kubelet in one machine, and kube-proxy if the plan says so."""

import os
import time
from collections.abc import Sequence
from pathlib import Path

from deploy.cluster import cgroups, network, node_files, processes
from deploy.cluster.control_plane import ControlPlane
from deploy.cluster.keys import PROXY, Keys
from deploy.cluster.machine import Machine
from deploy.cluster.machine_init import MachineSettings
from deploy.cluster.packages import Unpacked
from deploy.cluster.plan import NodePlan, Plan
from deploy.cluster.state import State
from deploy.programs.build import Programs
from deploy.programs.errors import SetupError

CONTAINERD, KUBELET, KUBE_PROXY = "containerd", "kubelet", "kube-proxy"
_CONTAINERD_SECONDS = 60.0
_TABLE_SECONDS = 60.0
_INTERVAL = 0.2
_RECREATE = ("add", "delete")
"""A table that does not exist cannot be deleted."""
_CHANGED_FOLDERS = ("/etc", "/var/lib", "/var/log")
"""Directories in which containerd, CNI and the kubelet write at fixed paths."""


class Node:
    """The machine of a node."""

    def __init__(self, state: State, plan: Plan, node: NodePlan, tools: tuple[Programs, Unpacked, Keys]) -> None:
        """Start nothing."""
        self.plan = node
        self.machine = Machine(node.name, state.machine(node.name), state.logs)
        self._cluster = plan
        self._cgroup = f"{state.cgroup_prefix}-{node.name}"
        self._programs, self._packages, self._keys = tools

    def start_machine(self, control_plane: ControlPlane) -> None:
        """Start the machine, and connect it with the control plane's, which must run."""
        self.boot()
        network.connect_node(control_plane.machine, self.machine, self._cluster, self.plan)

    def boot(self) -> None:
        """Start the machine without a network."""
        files = self._write_files()
        self.machine.start(self._settings(files, cgroups.create(self._cgroup, cgroups.own_cgroups())))

    def _write_files(self) -> Path:
        files, plugins = self.machine.folder / "files", self.machine.folder / "plugins"
        for each in (files, plugins, *(self.machine.folder / name for name in (CONTAINERD, KUBELET))):
            each.mkdir(parents=True, exist_ok=True)
        texts = node_files.node_files(self._cluster, self.plan, self._keys, self._packages, plugins)
        for name, text in texts.items():
            (files / name).write_text(text)
        for plugin in self._packages.cni_plugins.iterdir():
            link = plugins / plugin.name
            link.unlink(missing_ok=True)
            link.symlink_to(plugin)
        (plugins / "ptp").unlink()
        (plugins / "ptp").write_text(node_files.ptp_wrapper(self._packages.cni_plugins / "ptp"))
        (plugins / "ptp").chmod(0o755)
        return files

    def _settings(self, files: Path, groups: tuple[cgroups.Hierarchy, ...]) -> MachineSettings:
        folder = self.machine.folder
        conflist = f"{node_files.CNI_CONFIGURATION}/10-pods.conflist"
        return MachineSettings(
            self.plan.name,
            groups,
            overlays={each: str(folder / "changes" / each.strip("/").replace("/", "-")) for each in _CHANGED_FOLDERS},
            tmpfs=("/run",),
            folders=("/run/netns", "/run/lock", node_files.CONTAINERD_FOLDER, node_files.KUBELET_FOLDER),
            files={conflist: str(files / "cni.conflist"), "/etc/resolv.conf": str(files / "resolv.conf")},
            binds={
                node_files.CONTAINERD_FOLDER: str(folder / CONTAINERD),
                node_files.KUBELET_FOLDER: str(folder / KUBELET),
                **node_files.sysctl_binds(files),
            },
            sysctls=network.SYSCTLS,
        )

    @property
    def containerd_folder(self) -> Path:
        """The directory that containerd keeps images and containers in."""
        return self.machine.folder / CONTAINERD

    def start_containerd(self) -> None:
        """Start containerd, and wait until it answers; raise SetupError if it does not."""
        binaries = self._packages.containerd.parent
        environment = {
            "PATH": f"{binaries}:{self._packages.runc.parent}:{os.environ['PATH']}",
            "LD_LIBRARY_PATH": str(self._packages.libraries),
        }
        configuration = self.machine.folder / "files" / "containerd.toml"
        command = [str(binaries / "containerd"), f"--config={configuration}"]
        self.machine.start_process(CONTAINERD, command, environment, restart=True)
        ready = f"until [ -S {node_files.CONTAINERD_SOCKET} ] && {self._ctr('version')} > /dev/null; do sleep 0.1; done"
        try:
            processes.run(["timeout", str(_CONTAINERD_SECONDS), *self.machine.command("sh", "-c", f"{ready} 2>&1")])
        except SetupError as error:
            name = f"{CONTAINERD} on {self.plan.name}"
            raise processes.not_started(name, self.machine.log(CONTAINERD)) from error

    def _ctr(self, *arguments: str) -> str:
        return " ".join([str(self._packages.containerd.with_name("ctr")), *arguments])

    def import_images(self, archives: Sequence[Path]) -> None:
        """Import OCI archives into containerd."""
        ctr = str(self._packages.containerd.with_name("ctr"))
        for archive in archives:
            self.machine.run(ctr, "--namespace=k8s.io", "images", "import", str(archive))

    def start_kubelet(self, *flags: str) -> None:
        """Start the kubelet, with additional flags."""
        self.machine.start_process(
            KUBELET,
            [
                self._programs.path(KUBELET),
                f"--config={self.machine.folder / 'files' / 'kubelet.yaml'}",
                f"--kubeconfig={self._keys.kubeconfig(self.plan.name)}",
                f"--hostname-override={self.plan.name}",
                f"--node-ip={','.join(self.plan.addresses)}",
                f"--root-dir={node_files.KUBELET_FOLDER}",
                "--v=2",
                *flags,
            ],
            restart=True,
        )

    def start_kube_proxy(self, *flags: str) -> None:
        """Start kube-proxy in mode nftables, or as additional flags say."""
        self.machine.start_process(
            KUBE_PROXY,
            [
                self._programs.path(KUBE_PROXY),
                "--proxy-mode=nftables",
                f"--kubeconfig={self._keys.kubeconfig(PROXY)}",
                f"--hostname-override={self.plan.name}",
                f"--cluster-cidr={self._cluster.cluster_cidr}",
                # The machine's maximum cannot be written in a network namespace.
                "--conntrack-max-per-core=0",
                "--conntrack-min=0",
                "--v=2",
                *flags,
            ],
            restart=True,
        )

    def delete_tables(self, names: Sequence[str]) -> None:
        """Delete nftables' tables, whether they exist or not."""
        lines = [f"{verb} table {family} {name}\n" for name in names for family in ("ip", "ip6") for verb in _RECREATE]
        self.machine.run("nft", "-f", "-", stdin="".join(lines))

    def wait_for_table(self, name: str) -> None:
        """Wait until a Service proxy has created its table; raise SetupError if it does not."""
        deadline = time.monotonic() + _TABLE_SECONDS
        while f" {name}\n" not in self.machine.run("nft", "list", "tables"):
            if time.monotonic() > deadline:
                msg = f"no Service proxy has created the table {name} on {self.plan.name}"
                raise SetupError(msg)
            time.sleep(_INTERVAL)

    def kill(self) -> None:
        """End the node as a loss of power does; its images and volumes remain for the next start."""
        self.machine.kill()
