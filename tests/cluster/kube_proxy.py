"""KubeProxy: the real kube-proxy in a network namespace, in mode nftables or iptables, with health and metrics servers.

::

    with KubeProxy(cluster, node, folder, "nftables", "--cluster-cidr=10.244.0.0/16") as proxy:
        proxy.get(METRICS_PORT, "/proxyMode")

The machine needs ``nft`` or ``iptables`` and ``ip6tables``, as kube-proxy's image has them. The API server has to be
reachable at the namespace's loopback (``relay`` connects other namespaces with it).
"""

import json
import re
from pathlib import Path
from typing import Literal, NamedTuple, Self

import urllib3

from tests.cluster.cluster import ADDRESS, Cluster
from tests.cluster.server_process import ServerProcess
from tests.support.lab import plan
from tests.support.lab.namespace import Namespace
from tests.support.waiting import wait_until

Mode = Literal["nftables", "iptables"]
HEALTH_PORT = 10256
METRICS_PORT = 10249
USER = "system:kube-proxy"
"""The user to which the API server itself gives the role ``system:node-proxier``."""
_LAST_SYNC = re.compile(r"^kubeproxy_sync_proxy_rules_last_timestamp_seconds\S* (\S+)$", re.MULTILINE)
# nf_conntrack_max applies to the whole host, so tests do not change it. The other servers are on loopback.
_FLAGS = (
    *("--conntrack-max-per-core=0", "--conntrack-min=0", "-v=2"),
    *(f"--healthz-bind-address=0.0.0.0:{HEALTH_PORT}", f"--metrics-bind-address=127.0.0.1:{METRICS_PORT}"),
)


class Response(NamedTuple):
    """The status, body and headers of an HTTP response; the names of headers are in lower case."""

    status: int
    body: str
    headers: dict[str, str]


class KubeProxy(ServerProcess):
    """The process; a context manager, which starts it, waits for its first sync, and stops it. Its rules stay."""

    def __init__(
        self,
        cluster: Cluster,
        node: Namespace,
        folder: Path,
        mode: Mode,
        *flags: str,
        node_name: str = plan.NODE.node_name,
    ) -> None:
        """Write a certificate and a kubeconfig into ``folder``, where the log goes too; start nothing yet."""
        folder.mkdir(exist_ok=True)
        self.mode = mode
        self._node = node
        config = ["--kubeconfig", str(_kubeconfig(cluster, folder)), "--hostname-override", node_name]
        command = [cluster.programs.path("kube-proxy"), "--proxy-mode", mode, *config, *_FLAGS, *flags]
        super().__init__("kube-proxy", command, node, folder / "kube-proxy.log")

    def __enter__(self) -> Self:
        """Start the process, and wait until its first rules of both families are in force."""
        self.start()
        try:
            self.wait_ready()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the process with SIGTERM; kill it if that takes too long."""
        if not self.is_running:
            return
        try:
            self.stop()
        finally:
            self.close()

    def wait_ready(self) -> None:
        """Wait until the first rules of both families are in force."""
        wait_until(self.is_ready, f"kube-proxy does not come up; its log is {self.log}", self.check)

    def is_ready(self) -> bool:
        """Tell whether the rules of both families have been written at least once."""
        return len(self.last_syncs()) == 2

    def last_syncs(self) -> list[float]:
        """Return the times of the last successful syncs, of each family that had one; none if nothing listens."""
        try:
            metrics = self.get(METRICS_PORT, "/metrics")
        except urllib3.exceptions.HTTPError:
            return []
        return [float(value) for value in _LAST_SYNC.findall(metrics.body) if float(value)]

    def get(self, port: int, path: str) -> Response:
        """Send a GET request to a server on the node's loopback."""
        return get(self._node, port, path)


def get(node: Namespace, port: int, path: str, address: str = "127.0.0.1") -> Response:
    """Send a GET request in the node's namespace; raise urllib3's HTTPError if there is no response."""
    host = f"[{address}]" if ":" in address else address
    with node.entered(), urllib3.PoolManager() as pool:
        answer = pool.request("GET", f"http://{host}:{port}{path}", timeout=10.0, retries=False)
    headers = {name.lower(): value for name, value in answer.headers.items()}
    return Response(answer.status, answer.data.decode(), headers)


def _kubeconfig(cluster: Cluster, folder: Path) -> Path:
    cluster.keys.certificate("kube-proxy", USER)
    key = cluster.keys.path
    user = {"client-certificate": key("kube-proxy.crt"), "client-key": key("kube-proxy.key")}
    path = folder / "kube-proxy.kubeconfig"
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "tests",
                "clusters": [{"name": "tests", "cluster": {"server": ADDRESS, "certificate-authority": cluster.ca}}],
                "users": [{"name": "kube-proxy", "user": user}],
                "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "kube-proxy"}}],
            }
        )
    )
    return path
