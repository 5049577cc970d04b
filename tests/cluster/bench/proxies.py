"""The proxies: knft and kube-proxy, with the same settings and the same objects."""

from collections.abc import Callable, Mapping
from pathlib import Path

from tests.cluster.bench.proxy_names import IPTABLES, KNFT, NFTABLES
from tests.cluster.cluster import Cluster
from tests.cluster.cluster_knft import ClusterKnft
from tests.cluster.kube_proxy import KubeProxy, Mode
from tests.cluster.server_process import ServerProcess
from tests.cluster.service_account import ServiceAccount
from tests.support.lab.plan import CLUSTER

# Everything else has its default. The default verbosity of kube-proxy is 0.
_FLAGS = (f"--cluster-cidr={CLUSTER.ipv4}", "-v=0")
_TOKEN_SECONDS = 24 * 3600


def _knft(cluster: Cluster, folder: Path) -> ServerProcess:
    account = ServiceAccount(cluster)
    daemon = ClusterKnft(cluster, account, folder, *_FLAGS)
    daemon.volume.replace(account.token(_TOKEN_SECONDS))
    return daemon


def _kube_proxy(mode: Mode) -> Callable[[Cluster, Path], ServerProcess]:
    return lambda cluster, folder: KubeProxy(cluster, cluster.namespace, folder, mode, *_FLAGS)


PROXIES: Mapping[str, Callable[[Cluster, Path], ServerProcess]] = {
    KNFT: _knft,
    NFTABLES: _kube_proxy("nftables"),
    IPTABLES: _kube_proxy("iptables"),
}
"""A function for each proxy that makes its process, in the cluster's namespace and with files in a folder."""
