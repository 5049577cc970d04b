"""The proxies: knft and kube-proxy, with the same settings and the same objects."""

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.cluster.bench.commit_watch import CommitWatch
from tests.cluster.bench.proxy_names import IPTABLES, KNFT, LEGACY, NFTABLES
from tests.cluster.bench.xtables_watch import XtablesWatch
from tests.cluster.cluster import Cluster
from tests.cluster.cluster_knft import ClusterKnft
from tests.cluster.kube_proxy import KubeProxy, Mode
from tests.cluster.server_process import ServerProcess
from tests.cluster.service_account import ServiceAccount
from tests.support.lab.plan import CLUSTER

# Everything else has its default. The default verbosity of kube-proxy is 0.
_FLAGS = (f"--cluster-cidr={CLUSTER.ipv4}", "-v=0")
_TOKEN_SECONDS = 24 * 3600
_TOOLS = ("iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore")


class Proxy(NamedTuple):
    """``process`` makes the process, with files in a folder; ``watch`` finds out when its rules change."""

    process: Callable[[Cluster, Path], ServerProcess]
    watch: type[CommitWatch | XtablesWatch] = CommitWatch


def _knft(cluster: Cluster, folder: Path) -> ServerProcess:
    account = ServiceAccount(cluster)
    daemon = ClusterKnft(cluster, account, folder, *_FLAGS)
    daemon.volume.replace(account.token(_TOKEN_SECONDS))
    return daemon


def _kube_proxy(mode: Mode) -> Callable[[Cluster, Path], ServerProcess]:
    return lambda cluster, folder: KubeProxy(cluster, cluster.namespace, folder, mode, *_FLAGS)


def _legacy_kube_proxy(cluster: Cluster, folder: Path) -> ServerProcess:
    """Return a kube-proxy for which ``iptables`` is ``iptables-legacy``."""
    folder.mkdir()
    for tool in _TOOLS:
        family, _, command = tool.partition("-")
        program = shutil.which("-".join(filter(None, (family, "legacy", command))))
        assert program is not None, "iptables-legacy is not installed"
        (folder / tool).symlink_to(program)
    proxy = KubeProxy(cluster, cluster.namespace, folder, "iptables", *_FLAGS)
    proxy.set_command(["env", f"PATH={folder}:{os.environ['PATH']}", *proxy.command])
    return proxy


PROXIES: Mapping[str, Proxy] = {
    KNFT: Proxy(_knft),
    NFTABLES: Proxy(_kube_proxy("nftables")),
    IPTABLES: Proxy(_kube_proxy("iptables")),
    LEGACY: Proxy(_legacy_kube_proxy, XtablesWatch),
}
