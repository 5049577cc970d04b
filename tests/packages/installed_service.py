"""The unit of an installed package in a container with systemd, and the API server that it follows."""

import base64
import json
import re
import ssl
from pathlib import Path
from typing import Any

from tests.packages.systemd_container import SystemdContainer
from tests.support.certificates import CertificateAuthority
from tests.support.fake_api.cluster import FakeCluster, endpoint_slice, node, service, service_cidr
from tests.support.fake_api.server import FakeApiServer
from tests.support.lab.namespace import Namespace
from tests.support.log_lines import messages
from tests.support.waiting import wait_until

UNIT = "knft.service"
TOKEN = "only-root-may-read-this"  # noqa: S105 - not a real token
KUBECONFIG, CONFIGURATION = "/etc/knft/kubeconfig", "/etc/knft/config.yaml"
_PORT = 6443


class Cluster:
    """An API server at a fixed port of the container, which can be absent, and its kubeconfig."""

    def __init__(self, namespace: Namespace, folder: Path) -> None:
        """Make the objects; start nothing yet."""
        self._namespace = namespace
        authority = CertificateAuthority(folder, "cluster")
        self._tls: ssl.SSLContext = authority.server()
        self._server: FakeApiServer | None = None
        self.objects = FakeCluster()
        self.objects.put("services", service("web", 1))
        self.objects.put("endpointslices", endpoint_slice("web-1", "web", "10.244.1.5"))
        self.objects.put("nodes", node("node-1", "127.0.0.1"))
        self.objects.put("servicecidrs", service_cidr("kubernetes", "10.96.0.0/16"))
        trusted = base64.b64encode(authority.path.read_bytes()).decode()
        server = {"server": f"https://127.0.0.1:{_PORT}", "certificate-authority-data": trusted}
        self.kubeconfig: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "here",
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "knft"}}],
            "clusters": [{"name": "here", "cluster": server}],
            "users": [{"name": "knft", "user": {"token": TOKEN}}],
        }

    def use_credential_plugin(self, script: str) -> None:
        """Let a plugin give the token after a shell script."""
        version = "client.authentication.k8s.io/v1"
        credential = {"apiVersion": version, "kind": "ExecCredential", "status": {"token": TOKEN}}
        plugin = {
            "apiVersion": version,
            "command": "sh",
            "args": ["-c", f"{script}; echo '{json.dumps(credential)}'"],
            "interactiveMode": "Never",
        }
        self.kubeconfig["users"] = [{"name": "knft", "user": {"exec": plugin}}]

    def start(self) -> None:
        """Start the server, unless it runs."""
        if self._server is None:
            with self._namespace.entered():
                self._server = FakeApiServer(self.objects, port=_PORT, tls=self._tls)
            self._server.required_bearer = TOKEN

    def stop(self) -> None:
        """Stop the server."""
        if self._server is not None:
            self._server.__exit__(None, None, None)
            self._server = None


class Service:
    """The installed unit in the container."""

    def __init__(self, container: SystemdContainer, cluster: Cluster) -> None:
        """Take the container."""
        self.container = container
        self.cluster = cluster

    def start(self) -> None:
        """Start the unit with the API server, unless it runs, and wait until it is ready."""
        self.cluster.start()
        self.container.run("systemctl", "start", UNIT)
        assert self.show("ActiveState") == "active"

    def write_kubeconfig(self) -> None:
        self.container.write(KUBECONFIG, json.dumps(self.cluster.kubeconfig), 0o600)

    def show(self, name: str) -> str:
        return self.container.show(UNIT, name)

    def number(self, name: str) -> int:
        return int(self.show(name))

    @property
    def process(self) -> str:
        """The id of the main process, in the container."""
        return self.show("MainPID")

    def wait_restarted(self, process: str) -> None:
        """Wait until another process is ready."""
        wait_until(lambda: self.process not in (process, "0"), f"process {process} was not replaced", interval=0.1)
        wait_until(lambda: self.show("ActiveState") == "active", "the service is not ready again", interval=0.1)

    def entries(self) -> list[dict[str, Any]]:
        """Return the entries of the journal: of knft and of systemd about knft, with all that they have written yet."""
        self.container.run("journalctl", "--sync")
        lines = self.container.run("journalctl", "--no-pager", "--output=json", f"--unit={UNIT}").stdout
        return [json.loads(line) for line in lines.splitlines()]

    def priorities(self, words: str, severity: str = "") -> set[str]:
        """Return the priorities of the entries that contain some words, and are log lines of a severity if given."""
        return {
            entry["PRIORITY"]
            for entry in self.entries()
            if words in (text := str(entry["MESSAGE"])) and (not severity or messages(text, severity))
        }

    def override(self, *settings: str) -> None:
        """Override settings until the next call, besides the time before a restart, which would delay the tests."""
        lines = ["[Service]", "RestartSec=1s", *settings, ""]
        self.container.write(f"/etc/systemd/system/{UNIT}.d/test.conf", "\n".join(lines))
        self.container.run("systemctl", "daemon-reload")

    def rules(self) -> str:
        """Return the rules of the container, without the flags of a table, which tell whether knft runs."""
        listed = self.container.run("nft", "list", "ruleset").stdout
        return "".join(line for line in listed.splitlines(keepends=True) if not re.match(r"table |\tflags ", line))
