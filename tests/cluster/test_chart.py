"""The Helm chart: its life in a cluster, its values, and what it refuses."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.cluster import Cluster
from tests.cluster.manifest_client import kubeconfig, stored
from tests.cluster.rendered_manifests import (
    CHART,
    CIDR,
    HOST,
    MONITORING,
    daemon_set,
    helm,
    helm_lint,
    merged,
    objects,
    program,
)

pytestmark = pytest.mark.kernel


def _helm(manifest_cluster: Cluster, folder: Path, *arguments: str) -> str:
    """Run helm as the administrator; its caches are in ``folder``."""
    flags = [kubeconfig(manifest_cluster, folder), "--namespace=kube-system"]
    done = manifest_cluster.namespace.run(["env", f"HOME={folder}", program("helm"), *arguments, *flags], check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.usefixtures("prometheus_operator")
def test_helm_installs_upgrades_rolls_back_and_uninstalls(manifest_cluster: Cluster, tmp_path: Path) -> None:
    """No kubelet runs here: the objects change, and helm does not wait for pods."""
    values = {**HOST, **CIDR, "metrics": MONITORING}
    changed = merged(values, {"verbosity": 4, "config": {"clusterCIDR": "10.245.0.0/16"}})
    before, after = helm(values, tmp_path), helm(changed, tmp_path)
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    chart = ("knft", str(CHART), f"--values={tmp_path / 'values.yaml'}")
    daemon_set = "DaemonSet", "kube-system", "knft"

    _helm(manifest_cluster, tmp_path, "install", *chart)
    installed = stored(manifest_cluster, before)
    assert installed.keys() == objects(before).keys()

    _helm(manifest_cluster, tmp_path, "upgrade", *chart, "--set=verbosity=4", "--set=config.clusterCIDR=10.245.0.0/16")
    upgraded = stored(manifest_cluster, after)
    assert upgraded.keys() == objects(after).keys()
    assert upgraded[daemon_set]["spec"]["template"] != installed[daemon_set]["spec"]["template"]
    assert {kind for kind, _, _ in objects(before).keys() - stored(manifest_cluster, before).keys()} == {"ConfigMap"}

    _helm(manifest_cluster, tmp_path, "rollback", "knft", "1")
    assert stored(manifest_cluster, before) == installed
    assert "ConfigMap" in {kind for kind, _, _ in objects(after).keys() - stored(manifest_cluster, after).keys()}
    revisions = yaml.safe_load(_helm(manifest_cluster, tmp_path, "history", "knft", "--output=yaml"))
    assert [each["status"] for each in revisions] == ["superseded", "superseded", "deployed"]

    _helm(manifest_cluster, tmp_path, "uninstall", "knft")
    assert stored(manifest_cluster, before) == stored(manifest_cluster, after) == {}


def test_change_of_the_chart_s_configuration_replaces_the_pods(tmp_path: Path) -> None:
    first, second = (
        daemon_set(objects(helm({**HOST, "config": {"clusterCIDR": cidr}}, tmp_path)))
        for cidr in ("10.244.0.0/16", "10.245.0.0/16,fd00::/64")
    )
    assert first["spec"]["template"] != second["spec"]["template"]


def test_chart_is_accepted_by_lint(tmp_path: Path) -> None:
    assert "0 chart(s) failed" in helm_lint({**HOST, **CIDR, "metrics": MONITORING}, tmp_path)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no address": ({}, "apiServer.host is required"),
    "wrong name": ({**HOST, "apiserver": {}}, "additional properties 'apiserver' not allowed"),
    "wrong type": ({**HOST, "verbosity": "high"}, "got string, want integer"),
    "kind in the configuration": ({**HOST, "config": {"kind": "Pod"}}, "config/kind"),
    "address in the configuration": ({**HOST, "config": {"healthzBindAddress": "127.0.0.1:1"}}, "healthzBindAddress"),
    "other probe": ({**HOST, "livenessProbe": {"exec": {}}}, "livenessProbe"),
    "reserved label": ({**HOST, "podLabels": {"k8s-app": "x"}}, "invalid propertyName 'k8s-app'"),
    "metrics of kube-proxy's configuration": (
        {"kubeProxyConfig": {"enabled": True}, "metrics": {"enabled": True}},
        "have no effect with kubeProxyConfig.enabled",
    ),
    "monitor without metrics": (
        {**HOST, "metrics": {"serviceMonitor": {"enabled": True}}},
        "metrics.serviceMonitor.enabled needs metrics.enabled",
    ),
}


@pytest.mark.parametrize(("values", "message"), REFUSED.values(), ids=REFUSED)
def test_wrong_values_are_refused(tmp_path: Path, values: dict[str, Any], message: str) -> None:
    with pytest.raises(subprocess.CalledProcessError) as refused:
        helm(values, tmp_path)
    assert message in refused.value.stderr


def test_releases_of_kubernetes_that_are_not_tested_are_refused(tmp_path: Path) -> None:
    assert helm(HOST, tmp_path, "kube-system", "--kube-version=v1.34.0-gke.1")
    with pytest.raises(subprocess.CalledProcessError) as refused:
        helm(HOST, tmp_path, "kube-system", "--kube-version=v1.33.9")
    assert "chart requires kubeVersion: >=1.34.0-0" in refused.value.stderr


def _leaves(value: Any, path: tuple[str, ...] = ()) -> set[str]:
    """Return the paths of all values that are not objects with fields."""
    if isinstance(value, dict) and value:
        return set().union(*(_leaves(each, (*path, name)) for name, each in value.items()))
    return {".".join(path)}


EXERCISED: dict[str, tuple[Any, str]] = {
    "image.repository": ("registry.example/knft", "image: registry.example/knft:0.1.0"),
    "image.tag": ("7.8.9", "image: knft.dev/knft:7.8.9"),
    "image.digest": ("sha256:" + "0" * 64, "image: knft.dev/knft@sha256:0000"),
    "image.pullPolicy": ("Always", "imagePullPolicy: Always"),
    "imagePullSecrets": ([{"name": "registry"}], "imagePullSecrets:\n        - name: registry"),
    "apiServer.host": ("2001:db8::1", 'value: "2001:db8::1"'),
    "apiServer.port": (443, 'value: "443"'),
    "kubeProxyConfig.enabled": (True, "--config=/var/lib/kube-proxy/config.conf"),
    "kubeProxyConfig.configMap": ("other", "name: other"),
    "config.mode": ("iptables", "mode: iptables"),
    "config.oomScoreAdj": (-500, "oomScoreAdj: -500"),
    "healthz.port": (7777, "healthzBindAddress: 0.0.0.0:7777"),
    "verbosity": (4, "--v=4"),
    "extraArgs": (["--sync-burst=2"], "- --sync-burst=2"),
    "initContainer.enabled": (False, "!initContainers"),
    "nodeSelector": ({"zone": "a"}, "zone: a"),
    "affinity": ({"nodeAffinity": {}}, "nodeAffinity: {}"),
    "tolerations": ([{"key": "only"}], "- key: only"),
    "priorityClassName": ("other", "priorityClassName: other"),
    "updateStrategy.type": ("OnDelete", "type: OnDelete"),
    "updateStrategy.rollingUpdate.maxUnavailable": (3, "maxUnavailable: 3"),
    "terminationGracePeriodSeconds": (77, "terminationGracePeriodSeconds: 77"),
    "podAnnotations": ({"note": "yes"}, 'default-container: knft\n        note: "yes"'),
    "podLabels": ({"team": "net"}, "team: net"),
    "resources.requests.cpu": ("77m", "cpu: 77m"),
    "resources.requests.memory": ("77Mi", "memory: 77Mi"),
    "resources.limits.memory": ("7Gi", "memory: 7Gi"),
    **{
        f"{probe}Probe.{field}": (77, f"{field}: 77")
        for probe, field in (
            ("startup", "periodSeconds"),
            ("startup", "failureThreshold"),
            ("liveness", "periodSeconds"),
            ("liveness", "timeoutSeconds"),
            ("readiness", "periodSeconds"),
            ("readiness", "timeoutSeconds"),
        )
    },
    "rbac.create": (False, "!kind: ClusterRole\n"),
    "serviceAccount.create": (False, "!kind: ServiceAccount\nmetadata"),
    "serviceAccount.name": ("other", "serviceAccountName: other"),
    "serviceAccount.annotations": ({"role": "arn"}, "role: arn"),
    "namespace.create": (True, "kind: Namespace"),
    "metrics.enabled": (True, "metricsBindAddress: 0.0.0.0:10249"),
    "metrics.bindAddress": ("10.0.0.1", "metricsBindAddress: 10.0.0.1:10249"),
    "metrics.port": (7777, "metricsBindAddress: 0.0.0.0:7777"),
    "metrics.serviceMonitor.enabled": (True, "kind: ServiceMonitor"),
    "metrics.serviceMonitor.interval": ("7s", "interval: 7s"),
    "metrics.serviceMonitor.labels": ({"release": "prometheus"}, "release: prometheus"),
    "metrics.prometheusRule.enabled": (True, "kind: PrometheusRule"),
    "metrics.prometheusRule.labels": ({"role": "alerts"}, "role: alerts"),
    "metrics.dashboard.enabled": (True, '"title": "knft"'),
    "metrics.dashboard.labels.grafana_dashboard": ("yes", 'grafana_dashboard: "yes"'),
}
"""A value for each path, and what the output has then and not before; with "!", what it has before and not then."""


NEEDED: dict[str, dict[str, Any]] = {
    "kubeProxyConfig.configMap": {"kubeProxyConfig": {"enabled": True}},
    "metrics.bindAddress": {"metrics": {"enabled": True}},
    "metrics.port": {"metrics": {"enabled": True}},
    "metrics.serviceMonitor.enabled": {"metrics": {"enabled": True}},
    "metrics.serviceMonitor.interval": {"metrics": MONITORING},
    "metrics.serviceMonitor.labels": {"metrics": MONITORING},
    "metrics.prometheusRule.labels": {"metrics": MONITORING},
    "metrics.dashboard.labels.grafana_dashboard": {"metrics": MONITORING},
}
"""Other values that a value needs to have an effect."""


def test_kube_proxy_s_configuration_needs_its_namespace(tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError) as refused:
        helm({"kubeProxyConfig": {"enabled": True}}, tmp_path, "knft-system")
    assert "needs the namespace kube-system" in refused.value.stderr


def test_each_value_of_the_chart_is_exercised() -> None:
    assert _leaves(yaml.safe_load((CHART / "values.yaml").read_text())) == EXERCISED.keys()


@pytest.mark.parametrize("path", EXERCISED)
def test_value_has_its_effect(tmp_path: Path, path: str) -> None:
    value, expected = EXERCISED[path]
    before = merged(HOST, NEEDED.get(path, {}))
    for name in reversed(path.split(".")):
        value = {name: value}
    without, with_value = helm(before, tmp_path), helm(merged(before, value), tmp_path)
    if expected.startswith("!"):
        without, with_value = with_value, without
    assert expected.removeprefix("!") in with_value
    assert expected.removeprefix("!") not in without
