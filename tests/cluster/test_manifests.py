"""The kustomize overlays, kubeadm's patch and the Helm chart give the same objects, which the API server accepts."""

import copy
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.cluster import kubeadm
from deploy.programs.build import kubeadm_program
from deploy.programs.modules import module_folder
from tests.cluster.cluster import ADDRESS, Cluster
from tests.cluster.rendered_manifests import (
    CHART,
    KUSTOMIZE,
    Objects,
    helm,
    helm_lint,
    kustomization,
    kustomize,
    objects,
    program,
)
from tests.support.lab.links import netlink
from tests.support.lab.namespace import Namespace

pytestmark = pytest.mark.kernel

CHART_LABELS = {"app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "helm.sh/chart"}
HOST = {"apiServer": {"host": "192.0.2.1"}}
CIDR = {"config": {"clusterCIDR": "10.244.0.0/16"}}
MONITORING = {
    "enabled": True,
    "serviceMonitor": {"enabled": True},
    "prometheusRule": {"enabled": True},
    "dashboard": {"enabled": True},
}
PROMETHEUS_OPERATOR = (
    "github.com/prometheus-operator/prometheus-operator",
    "v0.85.0",
    "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s=",
)


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


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """An API server of its own: these tests also remove knft's objects, which other tests use."""
    namespace = Namespace.create("manifests")
    with netlink(namespace) as link:
        link.up("lo")
    with Cluster(namespace, tmp_path_factory.mktemp("manifests")) as cluster:
        yield cluster
    namespace.close()


@pytest.fixture(scope="module")
def prometheus_operator(cluster: Cluster) -> None:
    """Define the resources of Prometheus Operator."""
    folder = module_folder(*PROMETHEUS_OPERATOR) / "example" / "prometheus-operator-crd"
    names = ("servicemonitors", "prometheusrules")
    text = "---\n".join((folder / f"monitoring.coreos.com_{name}.yaml").read_text() for name in names)
    _apply(cluster, text)
    definitions = [f"crd/{name}.monitoring.coreos.com" for name in names]
    _kubectl(cluster, "wait", "--for=condition=Established", "--timeout=60s", *definitions)


def _kubectl(cluster: Cluster, *arguments: str, stdin: str = "") -> str:
    key = cluster.keys.path
    credentials = {
        "server": ADDRESS,
        "certificate-authority": key("ca.crt"),
        "client-certificate": key("admin.crt"),
        "client-key": key("admin.key"),
    }
    flags = [f"--{name}={value}" for name, value in credentials.items()]
    done = cluster.namespace.run([program("kubectl"), *flags, *arguments], stdin=stdin, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _apply(cluster: Cluster, text: str, *flags: str) -> str:
    return _kubectl(
        cluster, "apply", "--server-side", "--validate=strict", "--force-conflicts", *flags, "-f", "-", stdin=text
    )


@pytest.mark.usefixtures("prometheus_operator")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("tool", ["kustomize", "helm"])
def test_server_accepts_all_objects(
    cluster: Cluster, tmp_path: Path, tool: str, case: tuple[str, tuple[str, ...], dict[str, Any], str]
) -> None:
    base, components, values, namespace = case
    text = kustomization(tmp_path, base, components) if tool == "kustomize" else helm(values, tmp_path, namespace)
    if namespace != "kube-system":
        _apply(cluster, (KUSTOMIZE / "components/own-namespace/namespace.yaml").read_text())
    applied = _apply(cluster, text, "--dry-run=server").splitlines()
    assert len(applied) == len(objects(text))
    assert all(line.endswith("serverside-applied (server dry run)") for line in applied)


def _kubeconfig(cluster: Cluster, folder: Path) -> str:
    """Write the administrator's kubeconfig, and return the flag that names it."""
    key = cluster.keys.path
    servers = {"server": ADDRESS, "certificate-authority": key("ca.crt")}
    user = {"client-certificate": key("admin.crt"), "client-key": key("admin.key")}
    value = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "tests", "cluster": servers}],
        "users": [{"name": "admin", "user": user}],
        "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "admin"}}],
        "current-context": "tests",
    }
    (folder / "kubeconfig").write_text(yaml.safe_dump(value))
    return f"--kubeconfig={folder / 'kubeconfig'}"


def _helm(cluster: Cluster, folder: Path, *arguments: str) -> str:
    """Run helm as the administrator; its caches are in ``folder``."""
    flags = [_kubeconfig(cluster, folder), "--namespace=kube-system"]
    done = cluster.namespace.run(["env", f"HOME={folder}", program("helm"), *arguments, *flags], check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _stored(cluster: Cluster, text: str) -> Objects:
    """Return those of the objects that the API server has, with the fields that the text can set."""
    found = _kubectl(cluster, "get", "--ignore-not-found", "-f", "-", "-o", "yaml", stdin=text)
    items = (yaml.safe_load(found) or {"items": []})["items"]
    kept = ("spec", "data", "rules", "roleRef", "subjects")
    return {
        (item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]): {
            field: item[field] for field in kept if field in item
        }
        for item in items
    }


@pytest.mark.usefixtures("prometheus_operator")
def test_helm_installs_upgrades_rolls_back_and_uninstalls(cluster: Cluster, tmp_path: Path) -> None:
    """No kubelet runs here: the objects change, and helm does not wait for pods."""
    values = {**HOST, **CIDR, "metrics": MONITORING}
    changed = _merged(values, {"verbosity": 4, "config": {"clusterCIDR": "10.245.0.0/16"}})
    before, after = helm(values, tmp_path), helm(changed, tmp_path)
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    chart = ("knft", str(CHART), f"--values={tmp_path / 'values.yaml'}")
    daemon_set = "DaemonSet", "kube-system", "knft"

    _helm(cluster, tmp_path, "install", *chart)
    installed = _stored(cluster, before)
    assert installed.keys() == objects(before).keys()

    _helm(cluster, tmp_path, "upgrade", *chart, "--set=verbosity=4", "--set=config.clusterCIDR=10.245.0.0/16")
    upgraded = _stored(cluster, after)
    assert upgraded.keys() == objects(after).keys()
    assert upgraded[daemon_set]["spec"]["template"] != installed[daemon_set]["spec"]["template"]
    assert {kind for kind, _, _ in objects(before).keys() - _stored(cluster, before).keys()} == {"ConfigMap"}

    _helm(cluster, tmp_path, "rollback", "knft", "1")
    assert _stored(cluster, before) == installed
    assert "ConfigMap" in {kind for kind, _, _ in objects(after).keys() - _stored(cluster, after).keys()}
    revisions = yaml.safe_load(_helm(cluster, tmp_path, "history", "knft", "--output=yaml"))
    assert [each["status"] for each in revisions] == ["superseded", "superseded", "deployed"]

    _helm(cluster, tmp_path, "uninstall", "knft")
    assert _stored(cluster, before) == _stored(cluster, after) == {}


KUBEADM_PATCH = KUSTOMIZE / "overlays/kubeadm/kubeproxydaemonset+strategic.yaml"


def _patched_daemon_set(folder: Path) -> str:
    """Return kubeadm's DaemonSet of the pinned release with knft's patch."""
    (folder / "daemonset.yaml").write_text(yaml.safe_dump(kubeadm.daemon_set()))
    target = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "kube-proxy"}}
    patch = yaml.safe_dump(target | yaml.safe_load(KUBEADM_PATCH.read_text()))
    value = {"resources": ["daemonset.yaml"], "patches": [{"patch": patch, "target": {"kind": "DaemonSet"}}]}
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(value))
    return kustomize(folder)


def test_patch_puts_knft_into_kubeadm_s_daemon_set(cluster: Cluster, tmp_path: Path) -> None:
    """It differs from the chart's only in names, and keeps ConfigMap, ServiceAccount and labels of kube-proxy."""
    text = _patched_daemon_set(tmp_path)
    assert "serverside-applied" in _apply(cluster, text, "--dry-run=server")
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
    assert own["command"] == ["/usr/bin/knft", *other["args"]]
    for name in ("env", "image", "resources", "securityContext"):
        assert own[name] == other[name], name
    for name in ("startupProbe", "livenessProbe", "readinessProbe"):
        other[name]["httpGet"]["port"] = 10256
        assert own[name] == other[name], name
    (own,), (other,) = pod["initContainers"], expected["initContainers"]
    for name in ("args", "image", "resources", "securityContext"):
        assert own[name] == other[name], name


def test_kubeadm_applies_the_patch(cluster: Cluster, tmp_path: Path) -> None:
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
    command = ["env", "-i", built.path("kubeadm"), *phase, _kubeconfig(cluster, tmp_path)]
    text = _patched_daemon_set(tmp_path)
    expected = yaml.safe_load(_apply(cluster, text, "--dry-run=server", "-o", "yaml"))["spec"]
    named = ("-n", "kube-system", "daemonset/kube-proxy")
    try:
        for _ in range(2):
            done = cluster.namespace.run(command)
            assert 'to target "kubeproxydaemonset"' in done.stdout
            found = _stored(cluster, text)["DaemonSet", "kube-system", "kube-proxy"]["spec"]
            assert found == expected
            _kubectl(cluster, "set", "image", *named, "kube-proxy=registry.k8s.io/kube-proxy:v1.36.3")
    finally:
        _kubectl(cluster, "delete", "--ignore-not-found", *named)


OTHER_TERM = {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}


@pytest.mark.parametrize("has_affinity", [False, True])
def test_trial_keeps_kube_proxy_from_the_labelled_nodes(cluster: Cluster, *, has_affinity: bool) -> None:
    """Each patch is refused by a DaemonSet for which it is not meant, so that no affinity is lost."""
    kube_proxy = kubeadm.daemon_set()
    if has_affinity:
        required = {"nodeSelectorTerms": [{"matchExpressions": [OTHER_TERM]}]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
        kube_proxy["spec"]["template"]["spec"]["affinity"] = affinity
    _apply(cluster, yaml.safe_dump(kube_proxy))
    names = ["kube-proxy-patch.json", "kube-proxy-patch-with-affinity.json"]
    suitable, other = reversed(names) if has_affinity else names
    patch = ("-n", "kube-system", "patch", "daemonset", "kube-proxy", "--type=json", "--patch-file")
    try:
        with pytest.raises(AssertionError):
            _kubectl(cluster, *patch, str(KUSTOMIZE / "overlays/trial" / other))
        _kubectl(cluster, *patch, str(KUSTOMIZE / "overlays/trial" / suitable))
        with pytest.raises(AssertionError):
            _kubectl(cluster, *patch, str(KUSTOMIZE / "overlays/trial" / names[0]))
        found = yaml.safe_load(_kubectl(cluster, "-n", "kube-system", "get", "daemonset", "kube-proxy", "-o", "yaml"))
    finally:
        _kubectl(cluster, "-n", "kube-system", "delete", "daemonset", "kube-proxy")
    affinity = found["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    *others, avoided = term["matchExpressions"]
    assert others == ([OTHER_TERM] if has_affinity else [])
    trial = _daemon_set(objects(kustomize(KUSTOMIZE / "overlays/trial")))
    assert trial["spec"]["template"]["spec"]["nodeSelector"][avoided["key"]] == avoided["values"][0]
    assert avoided["operator"] == "NotIn"


def test_overlay_for_all_nodes_takes_over_the_trial_s_daemon_set(cluster: Cluster) -> None:
    """As docs/operations/installation.md#groups says: only the node selector changes."""
    text = {name: kustomize(KUSTOMIZE / "overlays" / name) for name in ("trial", "replace")}
    pods: list[dict[str, Any]] = []
    try:
        for overlay in text.values():
            _kubectl(cluster, "apply", "-f", "-", stdin=overlay)
            pods.append(_daemon_set(_stored(cluster, overlay))["spec"]["template"]["spec"])
    finally:
        _kubectl(cluster, "delete", "--ignore-not-found", "-f", "-", stdin=text["replace"])
    selectors = [pod.pop("nodeSelector") for pod in pods]
    assert selectors == [{"kubernetes.io/os": "linux", "knft.dev/proxy": "knft"}, {"kubernetes.io/os": "linux"}]
    assert pods[0] == pods[1]
    assert objects(text["trial"]).keys() == objects(text["replace"]).keys()


def _daemon_set(found: Objects) -> dict[str, Any]:
    return found["DaemonSet", "kube-system", "knft"]


@pytest.mark.parametrize("change", ["config.yaml", "api-server.env"])
def test_change_of_the_configuration_replaces_the_pods(tmp_path: Path, change: str) -> None:
    """So that the init container runs again, and an error stops at the first pods."""
    overlay = tmp_path / "overlay"
    shutil.copytree(KUSTOMIZE / "overlays/replace", overlay)
    text = (overlay / "kustomization.yaml").read_text()
    (overlay / "kustomization.yaml").write_text(
        text.replace("../../base", os.path.relpath(KUSTOMIZE / "base", overlay))
    )
    before = _daemon_set(objects(kustomize(overlay)))
    changed = (overlay / change).read_text().replace("10.244.", "10.245.").replace("6443", "7445")
    (overlay / change).write_text(changed)
    assert _daemon_set(objects(kustomize(overlay)))["spec"]["template"] != before["spec"]["template"]


def test_change_of_the_chart_s_configuration_replaces_the_pods(tmp_path: Path) -> None:
    first, second = (
        _daemon_set(objects(helm({**HOST, "config": {"clusterCIDR": cidr}}, tmp_path)))
        for cidr in ("10.244.0.0/16", "10.245.0.0/16,fd00::/64")
    )
    assert first["spec"]["template"] != second["spec"]["template"]


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
    startup = container["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] >= 60
    assert {"livenessProbe", "readinessProbe", "resources"} <= container.keys()


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
    "podAnnotations": ({"note": "yes"}, 'annotations:\n        note: "yes"'),
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
    before = _merged(HOST, NEEDED.get(path, {}))
    for name in reversed(path.split(".")):
        value = {name: value}
    without, with_value = helm(before, tmp_path), helm(_merged(before, value), tmp_path)
    if expected.startswith("!"):
        without, with_value = with_value, without
    assert expected.removeprefix("!") in with_value
    assert expected.removeprefix("!") not in without


def _merged(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    result = dict(first)
    for name, value in second.items():
        both = isinstance(value, dict) and isinstance(result.get(name), dict)
        result[name] = _merged(result[name], value) if both else value
    return result
