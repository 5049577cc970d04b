"""The real kube-proxy of the pinned release starts in both modes, programs a Service, and stops."""

from pathlib import Path
from typing import Any, get_args

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.kube_proxy import HEALTH_PORT, METRICS_PORT, KubeProxy, Mode
from tests.support.lab.topology import Lab
from tests.support.waiting import wait_until

_CLUSTER_IP = "10.97.0.77"
_SERVICE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "kube-proxy-probe", "namespace": "default"},
    "spec": {"clusterIP": _CLUSTER_IP, "ports": [{"port": 80}]},
}
# A Service without endpoints is in a table of rejected destinations of each mode.
_LISTINGS: dict[Mode, list[str]] = {
    "nftables": ["nft", "list", "table", "ip", "kube-proxy"],
    "iptables": ["iptables-save", "-t", "filter"],
}
_CLEANUP: dict[Mode, list[str]] = {
    "nftables": ["sh", "-c", "nft delete table ip kube-proxy; nft delete table ip6 kube-proxy"],
    "iptables": ["nft", "flush", "ruleset"],
}

pytestmark = pytest.mark.kernel


@pytest.mark.parametrize("mode", get_args(Mode))
def test_kube_proxy_programs_a_service(lab: Lab, cluster: Cluster, tmp_path: Path, mode: Mode) -> None:
    """It reports its mode and health, and writes the Service's cluster IP into the kernel."""
    node = lab.host("node").namespace
    cluster.api.create(_SERVICE)
    try:
        with KubeProxy(cluster, node, tmp_path, mode) as proxy:
            assert proxy.get(METRICS_PORT, "/proxyMode").body == mode
            assert proxy.get(HEALTH_PORT, "/livez").status == 200
            wait_until(
                lambda: _CLUSTER_IP in node.run(_LISTINGS[mode]).stdout, "the Service is not programmed", proxy.check
            )
        assert not proxy.is_running
    finally:
        cluster.api.delete(_SERVICE)
        node.run(_CLEANUP[mode])
