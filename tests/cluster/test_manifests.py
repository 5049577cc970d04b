"""The kustomize overlays and the Helm chart give the same objects, which the API server accepts."""

import copy
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.cluster import kubeadm
from tests.cluster.cluster import Cluster
from tests.cluster.manifest_client import apply, kubectl, stored
from tests.cluster.rendered_manifests import (
    CIDR,
    HOST,
    KUSTOMIZE,
    MONITORING,
    Objects,
    daemon_set,
    helm,
    kustomization,
    kustomize,
    objects,
)

pytestmark = pytest.mark.kernel


CHART_LABELS = {"app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "helm.sh/chart"}


def _comparable(found: Objects) -> Objects:
    """Return the objects without the chart's labels, with configurations as objects instead of text.

    The API server's address is in the ConfigMap of an overlay, and in the DaemonSet of the chart. The ConfigMaps' names
    depend on their contents.
    """
    result = copy.deepcopy(found)
    addresses: dict[str, str] = {}
    for item in result.values():
        for name in CHART_LABELS & item["metadata"].get("labels", {}).keys():
            del item["metadata"]["labels"][name]
        if item["kind"] == "ConfigMap":
            # kustomize labels no ConfigMap that an overlay generates.
            item["metadata"].pop("labels", None)
            addresses |= {key: item["data"].pop(key) for key in list(item["data"]) if key.startswith("api-server-")}
            item["data"] = {name: yaml.safe_load(text) for name, text in item["data"].items()}
            item["metadata"]["name"] = _without_digest(item["metadata"]["name"])
        elif item["kind"] == "DaemonSet":
            (volume,) = item["spec"]["template"]["spec"]["volumes"]
            volume["configMap"]["name"] = _without_digest(volume["configMap"]["name"])
    for item in result.values():
        for variable in item["spec"]["template"]["spec"]["containers"][0]["env"] if item["kind"] == "DaemonSet" else ():
            source = variable.get("valueFrom", {}).get("configMapKeyRef")
            if source is not None:
                variable["value"] = addresses[source["key"]]
                del variable["valueFrom"]
    return {(kind, namespace, _without_digest(name)): item for (kind, namespace, name), item in result.items()}


def _without_digest(name: str) -> str:
    return re.sub(r"^knft-(?!dashboard|metrics)[0-9a-z]{10}$", "knft", name)


CASES: dict[str, tuple[str, tuple[str, ...], dict[str, Any], str]] = {
    "replace": ("overlays/replace", (), {**HOST, **CIDR}, "kube-system"),
    "trial": ("overlays/trial", (), {**HOST, **CIDR, "nodeSelector": {"knft.dev/proxy": "knft"}}, "kube-system"),
    "own namespace": (
        "overlays/replace",
        ("own-namespace",),
        {**HOST, **CIDR, "namespace": {"create": True}},
        "knft-system",
    ),
    "kube-proxy's configuration": (
        "overlays/replace",
        ("kube-proxy-config",),
        {"kubeProxyConfig": {"enabled": True}},
        "kube-system",
    ),
    "monitoring": ("overlays/replace", ("monitoring",), {**HOST, **CIDR, "metrics": MONITORING}, "kube-system"),
    "monitoring in its own namespace": (
        "overlays/replace",
        ("monitoring", "own-namespace"),
        {**HOST, **CIDR, "metrics": MONITORING, "namespace": {"create": True}},
        "knft-system",
    ),
}


@pytest.mark.parametrize(("base", "components", "values", "namespace"), CASES.values(), ids=CASES)
def test_chart_and_overlays_are_equal(
    tmp_path: Path, base: str, components: tuple[str, ...], values: dict[str, Any], namespace: str
) -> None:
    found = _comparable(objects(kustomization(tmp_path, base, components)))
    expected = _comparable(objects(helm(values, tmp_path, namespace)))
    configuration = "ConfigMap", namespace, "knft"
    if "kube-proxy-config" in components:
        del found[configuration]  # It is in the overlay, but has no effect.
    elif "monitoring" in components:
        found[configuration]["data"]["config.yaml"]["metricsBindAddress"] = "0.0.0.0:10249"
    assert found == expected


@pytest.mark.usefixtures("prometheus_operator")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("tool", ["kustomize", "helm"])
def test_server_accepts_all_objects(
    manifest_cluster: Cluster, tmp_path: Path, tool: str, case: tuple[str, tuple[str, ...], dict[str, Any], str]
) -> None:
    base, components, values, namespace = case
    text = kustomization(tmp_path, base, components) if tool == "kustomize" else helm(values, tmp_path, namespace)
    if namespace != "kube-system":
        apply(manifest_cluster, (KUSTOMIZE / "components/own-namespace/namespace.yaml").read_text())
    applied = apply(manifest_cluster, text, "--dry-run=server").splitlines()
    assert len(applied) == len(objects(text))
    assert all(line.endswith("serverside-applied (server dry run)") for line in applied)


OTHER_TERM = {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}


@pytest.mark.parametrize("has_affinity", [False, True])
def test_trial_keeps_kube_proxy_from_the_labelled_nodes(manifest_cluster: Cluster, *, has_affinity: bool) -> None:
    """Each patch is refused by a DaemonSet for which it is not meant, so that no affinity is lost."""
    kube_proxy = kubeadm.daemon_set()
    if has_affinity:
        required = {"nodeSelectorTerms": [{"matchExpressions": [OTHER_TERM]}]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
        kube_proxy["spec"]["template"]["spec"]["affinity"] = affinity
    apply(manifest_cluster, yaml.safe_dump(kube_proxy))
    names = ["kube-proxy-patch.json", "kube-proxy-patch-with-affinity.json"]
    suitable, other = reversed(names) if has_affinity else names
    patch = ("-n", "kube-system", "patch", "daemonset", "kube-proxy", "--type=json", "--patch-file")
    try:
        with pytest.raises(AssertionError):
            kubectl(manifest_cluster, *patch, str(KUSTOMIZE / "overlays/trial" / other))
        kubectl(manifest_cluster, *patch, str(KUSTOMIZE / "overlays/trial" / suitable))
        with pytest.raises(AssertionError):
            kubectl(manifest_cluster, *patch, str(KUSTOMIZE / "overlays/trial" / names[0]))
        text = kubectl(manifest_cluster, "-n", "kube-system", "get", "daemonset", "kube-proxy", "-o", "yaml")
    finally:
        kubectl(manifest_cluster, "-n", "kube-system", "delete", "daemonset", "kube-proxy")
    affinity = yaml.safe_load(text)["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    *others, avoided = term["matchExpressions"]
    assert others == ([OTHER_TERM] if has_affinity else [])
    trial = daemon_set(objects(kustomize(KUSTOMIZE / "overlays/trial")))
    assert trial["spec"]["template"]["spec"]["nodeSelector"][avoided["key"]] == avoided["values"][0]
    assert avoided["operator"] == "NotIn"


def test_overlay_for_all_nodes_takes_over_the_trial_s_daemon_set(manifest_cluster: Cluster) -> None:
    """As docs/operations/installation.md#groups says: only the node selector changes."""
    text = {name: kustomize(KUSTOMIZE / "overlays" / name) for name in ("trial", "replace")}
    pods: list[dict[str, Any]] = []
    try:
        for overlay in text.values():
            kubectl(manifest_cluster, "apply", "-f", "-", stdin=overlay)
            pods.append(daemon_set(stored(manifest_cluster, overlay))["spec"]["template"]["spec"])
    finally:
        kubectl(manifest_cluster, "delete", "--ignore-not-found", "-f", "-", stdin=text["replace"])
    selectors = [pod.pop("nodeSelector") for pod in pods]
    assert selectors == [{"kubernetes.io/os": "linux", "knft.dev/proxy": "knft"}, {"kubernetes.io/os": "linux"}]
    assert pods[0] == pods[1]
    assert objects(text["trial"]).keys() == objects(text["replace"]).keys()


@pytest.mark.parametrize("change", ["config.yaml", "api-server.env"])
def test_change_of_the_configuration_replaces_the_pods(tmp_path: Path, change: str) -> None:
    """So that the init container runs again, and an error stops at the first pods."""
    overlay = tmp_path / "overlay"
    shutil.copytree(KUSTOMIZE / "overlays/replace", overlay)
    text = (overlay / "kustomization.yaml").read_text()
    (overlay / "kustomization.yaml").write_text(
        text.replace("../../base", os.path.relpath(KUSTOMIZE / "base", overlay))
    )
    before = daemon_set(objects(kustomize(overlay)))
    changed = (overlay / change).read_text().replace("10.244.", "10.245.").replace("6443", "7445")
    (overlay / change).write_text(changed)
    assert daemon_set(objects(kustomize(overlay)))["spec"]["template"] != before["spec"]["template"]


def test_container_has_only_what_it_needs(tmp_path: Path) -> None:
    daemon_set = objects(helm(HOST, tmp_path))["DaemonSet", "kube-system", "knft"]["spec"]
    assert daemon_set["updateStrategy"]["rollingUpdate"]["maxUnavailable"] == "10%"
    pod = daemon_set["template"]["spec"]
    assert pod["securityContext"] == {"seccompProfile": {"type": "RuntimeDefault"}}
    assert pod["priorityClassName"] == "system-node-critical"
    assert pod["hostNetwork"] is True
    assert pod["tolerations"] == [{"operator": "Exists"}]
    assert {"hostPID", "hostIPC"}.isdisjoint(pod)
    assert all("hostPath" not in volume for volume in pod["volumes"])
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN"]},
    }
    (init,) = pod["initContainers"]
    assert init["args"][:2] == ["run", "--init-only"]
    assert init["securityContext"] == {"privileged": True, "readOnlyRootFilesystem": True}
    # kubectl exec does not print which container it has chosen.
    default = daemon_set["template"]["metadata"]["annotations"]["kubectl.kubernetes.io/default-container"]
    assert default == container["name"]
    startup = container["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] >= 60
    assert {"livenessProbe", "readinessProbe", "resources"} <= container.keys()
