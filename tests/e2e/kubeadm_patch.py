"""Puts knft into kubeadm's DaemonSet kube-proxy, as docs/operations/installation.md#kubeadm says."""

from deploy.cluster.cluster import Cluster
from deploy.cluster.plan import Proxy
from deploy.cluster.processes import CHECKOUT

_PATCH = CHECKOUT / "deploy/kustomize/overlays/kubeadm/kubeproxydaemonset+strategic.yaml"
_NAMESPACE = "--namespace=kube-system"


def patch_daemon_set(cluster: Cluster) -> None:
    """Replace kube-proxy by knft on all nodes, and remove kube-proxy's rules; raise SetupError if that fails."""
    cluster.kubectl("patch", "daemonset", "kube-proxy", _NAMESPACE, f"--patch-file={_PATCH}")
    cluster.wait_for_pods()
    names = cluster.kubectl("get", "pods", _NAMESPACE, "--selector=k8s-app=kube-proxy", "--output=name")
    for name in names.split():
        cluster.kubectl("exec", _NAMESPACE, name, "--", "knft", "cleanup", "--kube-proxy", "all")
    for node in cluster.nodes:
        node.wait_for_table(Proxy.KNFT.table)
