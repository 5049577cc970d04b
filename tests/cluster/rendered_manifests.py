"""Renders the kustomize overlays and the Helm chart with the real kubectl and helm."""

import os
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from deploy.programs.build import programs

CHECKOUT = Path(__file__).parents[2]
KUSTOMIZE = CHECKOUT / "deploy" / "kustomize"
CHART = CHECKOUT / "deploy" / "chart" / "knft"

HOST = {"apiServer": {"host": "192.0.2.1"}}
CIDR = {"config": {"clusterCIDR": "10.244.0.0/16"}}
MONITORING = {
    "enabled": True,
    "serviceMonitor": {"enabled": True},
    "prometheusRule": {"enabled": True},
    "dashboard": {"enabled": True},
}

Objects = dict[tuple[str, str, str], dict[str, Any]]
"""Objects by kind, namespace and name."""


@cache
def program(name: str) -> str:
    """Return the path of ``kubectl`` or ``helm``."""
    return programs(("kubectl", "helm")).path(name)


def kustomize(folder: Path) -> str:
    """Return the objects of a kustomization as YAML."""
    return _run(program("kubectl"), "kustomize", str(folder))


def kustomization(folder: Path, base: str, components: tuple[str, ...] = (), **fields: Any) -> str:
    """Write a kustomization of an overlay and components into ``folder``, and return its objects as YAML."""
    value = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [os.path.relpath(KUSTOMIZE / base, folder)],
        "components": [os.path.relpath(KUSTOMIZE / "components" / name, folder) for name in components],
        **fields,
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(value))
    return kustomize(folder)


def helm(values: Mapping[str, Any], folder: Path, namespace: str = "kube-system", *flags: str) -> str:
    """Return the objects of the chart as YAML; raise CalledProcessError if helm refuses the values."""
    file = folder / "values.yaml"
    file.write_text(yaml.safe_dump(dict(values)))
    command = (program("helm"), "template", "knft", str(CHART), "--namespace", namespace, "--values", str(file))
    return _run(*command, *flags)


def helm_lint(values: Mapping[str, Any], folder: Path) -> str:
    """Return what ``helm lint --strict`` prints; raise CalledProcessError if it finds a problem."""
    file = folder / "values.yaml"
    file.write_text(yaml.safe_dump(dict(values)))
    return _run(program("helm"), "lint", "--strict", str(CHART), "--values", str(file))


def _run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def objects(text: str) -> Objects:
    """Return the objects of a YAML text."""
    found = [item for item in yaml.safe_load_all(text) if item]
    keys = [(each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]) for each in found]
    assert len(set(keys)) == len(keys)
    return dict(zip(keys, found, strict=True))


def daemon_set(found: Objects) -> dict[str, Any]:
    """Return knft's DaemonSet."""
    return found["DaemonSet", "kube-system", "knft"]


def merged(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Return both objects as one; where both have a value, it is the second's."""
    result = dict(first)
    for name, value in second.items():
        both = isinstance(value, dict) and isinstance(result.get(name), dict)
        result[name] = merged(result[name], value) if both else value
    return result
