"""Keys, certificates and kubeconfigs of a cluster."""

import base64
import json
from pathlib import Path
from typing import Any

from deploy.cluster import processes
from deploy.cluster.plan import DOMAIN, Plan

ADMIN, CONTROLLER_MANAGER, SCHEDULER, PROXY = "admin", "kube-controller-manager", "kube-scheduler", "kube-proxy"
_USERS = {
    ADMIN: ("admin", "system:masters"),
    CONTROLLER_MANAGER: ("system:kube-controller-manager",),
    SCHEDULER: ("system:kube-scheduler",),
    PROXY: ("system:kube-proxy",),
    "apiserver-kubelet": ("kube-apiserver", "system:masters"),
    "front-proxy": ("front-proxy",),
}
"""The users of the control plane: the name of the certificate, then user name and groups."""


class Keys:
    """A directory with a CA, and the certificates that it signed."""

    def __init__(self, program: str, folder: Path) -> None:
        """Create nothing; ``program`` is the path of ``keys``."""
        self._program = program
        self._folder = folder

    def create(self, plan: Plan) -> None:
        """Create all keys, certificates and kubeconfigs of a cluster."""
        self._folder.mkdir(mode=0o700)
        self._run("authority", str(self._folder))
        self._certificate("etcd", "etcd")
        names = [f"kubernetes.default.svc.{DOMAIN}", "kubernetes.default", plan.api_service_address, *plan.addresses]
        self._certificate("apiserver", "kubernetes", hosts=names)
        for name, (user, *groups) in _USERS.items():
            self._certificate(name, user, *groups)
        for node in plan.nodes:
            self._certificate(node.name, f"system:node:{node.name}", "system:nodes", hosts=[node.name, *node.addresses])
        for name in (*(node.name for node in plan.nodes), ADMIN, CONTROLLER_MANAGER, SCHEDULER, PROXY):
            self.write_kubeconfig(self.kubeconfig(name), name, plan.api_address)

    def _certificate(self, name: str, user: str, *groups: str, hosts: list[str] | None = None) -> None:
        self._run("certificate", f"-hosts={','.join(hosts or [])}", str(self._folder), name, user, *groups)

    def _run(self, *arguments: str) -> None:
        processes.run([self._program, *arguments], "keys")

    def path(self, name: str) -> str:
        """Return the path of a file, such as ``ca.crt``."""
        return str(self._folder / name)

    def kubeconfig(self, name: str) -> Path:
        """Return the path of a user's kubeconfig."""
        return self._folder / f"{name}.kubeconfig"

    def write_kubeconfig(self, path: Path, name: str, server: str) -> None:
        """Write a kubeconfig that includes its certificates."""
        files = {each: Path(self.path(each)).read_bytes() for each in ("ca.crt", f"{name}.crt", f"{name}.key")}
        path.touch(mode=0o600)
        path.write_text(json.dumps(kubeconfig(name, server, *files.values()), indent=2))


def kubeconfig(user: str, server: str, authority: bytes, certificate: bytes, key: bytes) -> dict[str, Any]:
    """Return a kubeconfig."""
    credentials = {"client-certificate-data": _encoded(certificate), "client-key-data": _encoded(key)}
    cluster = {"server": server, "certificate-authority-data": _encoded(authority)}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "knft",
        "clusters": [{"name": "knft", "cluster": cluster}],
        "users": [{"name": user, "user": credentials}],
        "contexts": [{"name": "knft", "context": {"cluster": "knft", "user": user}}],
    }


def _encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()
