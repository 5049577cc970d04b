"""The patch for kubeadm's DaemonSet gives the DaemonSet of the chart, also if kubeadm applies it."""

import shutil
from pathlib import Path

import pytest
import yaml

from deploy.cluster import kubeadm
from deploy.programs.build import kubeadm_program
from tests.cluster.cluster import Cluster
from tests.cluster.manifest_client import apply, kubeconfig, kubectl, stored
from tests.cluster.rendered_manifests import KUSTOMIZE, helm, kustomize, objects

pytestmark = pytest.mark.kernel


KUBEADM_PATCH = KUSTOMIZE / "overlays/kubeadm/kubeproxydaemonset+strategic.yaml"


def _patched_daemon_set(folder: Path) -> str:
    """Return kubeadm's DaemonSet of the pinned release with knft's patch."""
    (folder / "daemonset.yaml").write_text(yaml.safe_dump(kubeadm.daemon_set()))
    target = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "kube-proxy"}}
    patch = yaml.safe_dump(target | yaml.safe_load(KUBEADM_PATCH.read_text()))
    value = {"resources": ["daemonset.yaml"], "patches": [{"patch": patch, "target": {"kind": "DaemonSet"}}]}
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(value))
    return kustomize(folder)


def test_patch_puts_knft_into_kubeadm_s_daemon_set(manifest_cluster: Cluster, tmp_path: Path) -> None:
    """It differs from the chart's only in names, and keeps ConfigMap, ServiceAccount and labels of kube-proxy."""
    text = _patched_daemon_set(tmp_path)
    assert "serverside-applied" in apply(manifest_cluster, text, "--dry-run=server")
    (found,) = objects(text).values()
    assert found["spec"]["selector"]["matchLabels"] == {"k8s-app": "kube-proxy"}
    assert found["spec"]["template"]["metadata"]["labels"] == {"k8s-app": "kube-proxy"}
    pod = found["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == "kube-proxy"
    assert pod["volumes"] == [{"name": "kube-proxy", "configMap": {"name": "kube-proxy"}}]
    chart = objects(helm({"kubeProxyConfig": {"enabled": True}}, tmp_path))["DaemonSet", "kube-system", "knft"]
    expected = chart["spec"]["template"]["spec"]
    for part in ("hostNetwork", "priorityClassName", "securityContext", "tolerations"):
        assert pod[part] == expected[part]
    (own,), (other,) = pod["containers"], expected["containers"]
    annotations = found["spec"]["template"]["metadata"]["annotations"]
    assert annotations["kubectl.kubernetes.io/default-container"] == own["name"]
    assert own["command"] == ["/usr/bin/knft", *other["args"]]
    for name in ("env", "image", "resources", "securityContext"):
        assert own[name] == other[name], name
    for name in ("startupProbe", "livenessProbe", "readinessProbe"):
        other[name]["httpGet"]["port"] = 10256
        assert own[name] == other[name], name
    (own,), (other,) = pod["initContainers"], expected["initContainers"]
    for name in ("args", "image", "resources", "securityContext"):
        assert own[name] == other[name], name


def test_kubeadm_applies_the_patch(manifest_cluster: Cluster, tmp_path: Path) -> None:
    """A real kubeadm with the patch target writes the DaemonSet of the test above, also over another one."""
    built = kubeadm_program()
    (tmp_path / "patches").mkdir()
    shutil.copy(KUBEADM_PATCH, tmp_path / "patches")
    version = "kubeadm.k8s.io/v1beta4"
    documents = (
        {
            "apiVersion": version,
            "kind": "InitConfiguration",
            # Without it, kubeadm asks for the address of the default route, which this namespace lacks.
            "localAPIEndpoint": {"advertiseAddress": "192.0.2.1"},
            "patches": {"directory": str(tmp_path / "patches")},
        },
        {"apiVersion": version, "kind": "ClusterConfiguration", "kubernetesVersion": built.release},
    )
    (tmp_path / "kubeadm.yaml").write_text(yaml.safe_dump_all(documents))
    phase = ("init", "phase", "addon", "kube-proxy", f"--config={tmp_path / 'kubeadm.yaml'}")
    # Without the environment: kubeadm writes the proxy variables of its own into the DaemonSet.
    command = ["env", "-i", built.path("kubeadm"), *phase, kubeconfig(manifest_cluster, tmp_path)]
    text = _patched_daemon_set(tmp_path)
    expected = yaml.safe_load(apply(manifest_cluster, text, "--dry-run=server", "-o", "yaml"))["spec"]
    named = ("-n", "kube-system", "daemonset/kube-proxy")
    try:
        for _ in range(2):
            done = manifest_cluster.namespace.run(command)
            assert 'to target "kubeproxydaemonset"' in done.stdout
            found = stored(manifest_cluster, text)["DaemonSet", "kube-system", "kube-proxy"]["spec"]
            assert found == expected
            kubectl(manifest_cluster, "set", "image", *named, "kube-proxy=registry.k8s.io/kube-proxy:v1.36.3")
    finally:
        kubectl(manifest_cluster, "delete", "--ignore-not-found", *named)
