"""kube-proxy as kubeadm deploys it: the DaemonSet of its source, with ConfigMap, ServiceAccount and permissions."""

import json
import re
from collections.abc import Iterator
from typing import Any

import yaml

from deploy.cluster.images import KUBE_PROXY
from deploy.cluster.plan import Plan
from deploy.programs.build import MODULE
from deploy.programs.errors import SetupError
from deploy.programs.modules import module_folder

_NAME = "kube-proxy"
_METADATA = {"name": _NAME, "namespace": "kube-system"}
_SOURCE = "cmd/kubeadm/app/phases/addons/proxy/manifests.go"
_SECRETS = "/var/run/secrets/kubernetes.io/serviceaccount"


def daemon_set(image: str = KUBE_PROXY) -> dict[str, Any]:
    """Return the DaemonSet from the source of the pinned release of Kubernetes; raise SetupError if that fails."""
    pinned = re.search(r"^k8s\.io/kubernetes (v\S+) (h1:\S+)$", (MODULE / "go.sum").read_text(), re.MULTILINE)
    if pinned is None:
        msg = f"{MODULE / 'go.sum'} has no checksum of k8s.io/kubernetes"
        raise SetupError(msg)
    source = (module_folder("k8s.io/kubernetes", pinned[1], pinned[2]) / _SOURCE).read_text()
    found = re.search(r"KubeProxyDaemonSet19 = `\n(.*?)`", source, re.DOTALL)
    if found is None:
        msg = f"{_SOURCE} of Kubernetes {pinned[1]} has no DaemonSet of kube-proxy"
        raise SetupError(msg)
    words = {"Image": image, "ProxyConfigMap": _NAME, "ProxyConfigMapKey": "config.conf"}
    value: dict[str, Any] = yaml.safe_load(re.sub(r"\{\{ \.(\w+) \}\}", lambda match: words[match[1]], found[1]))
    return value


def kube_proxy_objects(plan: Plan, release: str) -> Iterator[dict[str, Any]]:
    """Yield the objects of kube-proxy for a cluster; ``release`` is of Kubernetes, such as ``v1.36.3``."""
    yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _METADATA}
    yield {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "kubeadm:node-proxier"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node-proxier"},
        "subjects": [{"kind": "ServiceAccount", **_METADATA}],
    }
    yield {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {**_METADATA, "labels": {"app": _NAME}},
        "data": {
            "config.conf": json.dumps(_configuration(plan), indent=2),
            "kubeconfig.conf": json.dumps(_kubeconfig(plan), indent=2),
        },
    }
    yield daemon_set(f"{KUBE_PROXY}:{release}")


def _configuration(plan: Plan) -> dict[str, Any]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": "/var/lib/kube-proxy/kubeconfig.conf"},
        "mode": "nftables",
        "clusterCIDR": plan.cluster_cidr,
        # The machine's maximum cannot be written in a network namespace.
        "conntrack": {"maxPerCore": 0, "min": 0},
        # containerd may lack the capability for the usual value.
        "oomScoreAdj": 0,
    }


def _kubeconfig(plan: Plan) -> dict[str, Any]:
    cluster = {"certificate-authority": f"{_SECRETS}/ca.crt", "server": plan.api_address}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "default", "cluster": cluster}],
        "contexts": [{"name": "default", "context": {"cluster": "default", "namespace": "default", "user": "default"}}],
        "current-context": "default",
        "users": [{"name": "default", "user": {"tokenFile": f"{_SECRETS}/token"}}],
    }
