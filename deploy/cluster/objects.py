"""The objects of a new cluster: its nodes, CoreDNS, and knft's kustomization. Computes only, but for reading a file."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from deploy.cluster.images import COREDNS, KNFT
from deploy.cluster.plan import API_PORT, NodePlan, Plan, Proxy

_COREDNS = Path(__file__).with_name("manifests") / "coredns.yaml"
PROXY_LABEL = "knft.dev/proxy"
"""The label that a node with knft has, with the value ``knft``."""


def node_object(node: NodePlan) -> dict[str, Any]:
    """Return a Node as it is before its kubelet starts."""
    labels = {"topology.kubernetes.io/zone": node.zone}
    if node.proxy is Proxy.KNFT:
        labels[PROXY_LABEL] = Proxy.KNFT.value
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name, "labels": labels},
        "spec": {"podCIDR": node.pod_cidrs[0], "podCIDRs": list(node.pod_cidrs)},
    }


def coredns_objects(plan: Plan) -> Iterator[dict[str, Any]]:
    """Yield the objects of CoreDNS."""
    for item in yaml.safe_load_all(_COREDNS.read_text()):
        if item["kind"] == "Deployment":
            container = item["spec"]["template"]["spec"]["containers"][0]
            # The API server itself, so that CoreDNS is ready on a node without Service proxy, too.
            address = {"KUBERNETES_SERVICE_HOST": plan.api_host, "KUBERNETES_SERVICE_PORT": str(API_PORT)}
            container["env"] = [{"name": name, "value": value} for name, value in address.items()]
            container["image"] = COREDNS
        if item["kind"] == "Service":
            item["spec"] |= {
                "clusterIP": plan.dns_addresses[0],
                "clusterIPs": list(plan.dns_addresses),
                "ipFamilyPolicy": "PreferDualStack",
            }
        yield item


def list_of(items: Iterator[dict[str, Any]]) -> dict[str, Any]:
    """Return a List of objects."""
    return {"apiVersion": "v1", "kind": "List", "items": list(items)}


def knft_configuration(plan: Plan) -> dict[str, Any]:
    """Return knft's configuration file."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clusterCIDR": plan.cluster_cidr,
        # containerd may lack the capability for the usual value.
        "oomScoreAdj": 0,
        # The machine's maximum cannot be written in a network namespace.
        "conntrack": {"maxPerCore": 0, "min": 0},
    }


def knft_kustomization(plan: Plan, base: str, tag: str) -> dict[str, Any]:
    """Return a kustomization of knft on the nodes with its label; ``base`` is the path of deploy/kustomize/base."""
    address = [f"api-server-host={plan.api_host}", f"api-server-port={API_PORT}"]
    selector = [
        {"op": "add", "path": f"/spec/template/spec/nodeSelector/{PROXY_LABEL.replace('/', '~1')}", "value": "knft"}
    ]
    return {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [base],
        "images": [{"name": KNFT, "newTag": tag}],
        "configMapGenerator": [
            {"name": "knft", "namespace": "kube-system", "files": ["config.yaml"], "literals": address}
        ],
        "generatorOptions": {"disableNameSuffixHash": True},
        "patches": [{"target": {"kind": "DaemonSet", "name": "knft"}, "patch": yaml.safe_dump(selector)}],
    }
