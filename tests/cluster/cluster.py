"""Cluster: etcd and kube-apiserver on the loopback of a network namespace, with certificates and RBAC.

::

    with Cluster(namespace, folder) as cluster:
        cluster.api.create(service)
        cluster.apiserver.kill()
"""

from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import kubernetes

from deploy.programs.build import programs
from tests.cluster.api import Api
from tests.cluster.desired import FIRST_PORT, LAST_PORT
from tests.cluster.etcd import EtcdStore
from tests.cluster.keys import Keys
from tests.cluster.server_process import ServerProcess
from tests.support.lab.links import netlink
from tests.support.lab.namespace import Namespace
from tests.support.waiting import wait_until

# The network namespace has no other processes: every port is free.
_ETCD = "https://127.0.0.1:2379"
_ETCD_PEERS = "https://127.0.0.1:2380"
ADDRESS = "https://127.0.0.1:6443"
API_SERVER_CIDRS = "10.97.0.0/24,fd00:10:97::/112"
"""The service CIDR of the API server; it creates a ServiceCIDR for it, and recreates that if it is deleted."""
ISSUER = "https://kubernetes.default.svc"


class Cluster:
    """Both servers; a context manager that starts and kills them."""

    def __init__(self, namespace: Namespace, folder: Path, *flags: str) -> None:
        """Create keys in ``folder``, where logs go too; ``flags`` are additional flags of the API server."""
        self.namespace = namespace
        self.folder = folder
        built = self.programs = programs()
        self.release = built.release
        self.keys = Keys(built, folder / "keys")
        self.keys.certificate("etcd", "etcd")
        self.keys.certificate("apiserver", "kubernetes")
        self.keys.certificate("admin", "admin", "system:masters")
        self.etcd_process = ServerProcess(
            "etcd", [built.path("etcd"), *self._etcd_flags()], namespace, folder / "etcd.log"
        )
        command = [built.path("kube-apiserver"), *self._apiserver_flags(), *flags]
        self.apiserver = ServerProcess("kube-apiserver", command, namespace, folder / "kube-apiserver.log")
        self.etcd_store = EtcdStore(namespace, _ETCD, self.keys)
        self.trust_ca(self.keys.path("ca.crt"))
        self._open = ExitStack()

    def __enter__(self) -> Self:
        """Start both servers, and wait until the API server is ready."""
        with netlink(self.namespace) as link:
            link.up("lo")
        with ExitStack() as started:
            for server in (self.etcd_process, self.apiserver):
                started.callback(server.close)
                server.start()
            self.wait_ready()
            self._open = started.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """Kill both servers."""
        self._open.close()

    def wait_ready(self) -> None:
        """Wait until both servers are ready; call it after one was started again."""
        wait_until(
            self.etcd_store.is_healthy,
            f"etcd does not come up; its log is {self.etcd_process.log}",
            self.etcd_process.check,
        )
        wait_until(self.api.ready, f"the API server does not come up; see {self.apiserver.log}", self.apiserver.check)

    def trust_ca(self, ca: str) -> None:
        """Make new clients, and the administrator's, trust another CA."""
        self.ca = ca
        found = self._configuration()
        found.cert_file, found.key_file = self.keys.path("admin.crt"), self.keys.path("admin.key")
        self.api = Api(self.namespace, found)

    def _configuration(self, **settings: Any) -> kubernetes.client.Configuration:
        found = kubernetes.client.Configuration(host=ADDRESS, **settings)
        found.ssl_ca_cert = self.ca
        return found

    def token_client(self, token: str) -> Api:
        """Return a client that uses a token."""
        return Api(self.namespace, self._configuration(api_key={"BearerToken": f"Bearer {token}"}))

    def _etcd_flags(self) -> list[str]:
        key = self.keys.path
        return [
            *(f"--data-dir={self.folder / 'etcd'}", "--name=etcd", f"--initial-cluster=etcd={_ETCD_PEERS}"),
            *(f"--listen-client-urls={_ETCD}", f"--advertise-client-urls={_ETCD}"),
            *(f"--listen-peer-urls={_ETCD_PEERS}", f"--initial-advertise-peer-urls={_ETCD_PEERS}"),
            *(f"--cert-file={key('etcd.crt')}", f"--key-file={key('etcd.key')}", f"--trusted-ca-file={key('ca.crt')}"),
            *(f"--peer-cert-file={key('etcd.crt')}", f"--peer-key-file={key('etcd.key')}"),
            *("--client-cert-auth", f"--peer-trusted-ca-file={key('ca.crt')}"),
            # A killed process loses nothing that it has written; only a power failure would.
            *("--unsafe-no-fsync", "--log-level=warn"),
        ]

    def _apiserver_flags(self) -> list[str]:
        key = self.keys.path
        return [
            "--allow-privileged=true",  # manifests of knft's DaemonSet
            *(f"--etcd-servers={_ETCD}", f"--etcd-cafile={key('ca.crt')}"),
            *(f"--etcd-certfile={key('etcd.crt')}", f"--etcd-keyfile={key('etcd.key')}"),
            # Tests read and write stored objects.
            "--storage-media-type=application/json",
            *("--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--secure-port=6443"),
            # No endpoints for the API server's own Service.
            "--endpoint-reconciler-type=none",
            *(f"--tls-cert-file={key('apiserver.crt')}", f"--tls-private-key-file={key('apiserver.key')}"),
            *(f"--client-ca-file={key('ca.crt')}", "--authorization-mode=RBAC"),
            *(f"--service-account-issuer={ISSUER}", f"--service-account-key-file={key('sa.key')}"),
            f"--service-account-signing-key-file={key('sa.key')}",
            f"--service-cluster-ip-range={API_SERVER_CIDRS}",
            f"--service-node-port-range={FIRST_PORT}-{LAST_PORT}",
            # Otherwise open watches delay its exit for a minute.
            "--shutdown-watch-termination-grace-period=1s",
            # It would require a ServiceAccount in each namespace.
            "--disable-admission-plugins=ServiceAccount",
        ]
