"""Runs kubectl as the administrator of a cluster."""

from pathlib import Path

import yaml

from tests.cluster.cluster import ADDRESS, Cluster
from tests.cluster.rendered_manifests import Objects, program


def kubectl(cluster: Cluster, *arguments: str, stdin: str = "") -> str:
    """Run kubectl, and return its output."""
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


def apply(cluster: Cluster, text: str, *flags: str) -> str:
    """Apply objects on the server; unknown fields are errors."""
    return kubectl(
        cluster, "apply", "--server-side", "--validate=strict", "--force-conflicts", *flags, "-f", "-", stdin=text
    )


def kubeconfig(cluster: Cluster, folder: Path) -> str:
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


def stored(cluster: Cluster, text: str) -> Objects:
    """Return those of the objects that the API server has, with the fields that the text can set."""
    found = kubectl(cluster, "get", "--ignore-not-found", "-f", "-", "-o", "yaml", stdin=text)
    items = (yaml.safe_load(found) or {"items": []})["items"]
    kept = ("spec", "data", "rules", "roleRef", "subjects")
    return {
        (item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]): {
            field: item[field] for field in kept if field in item
        }
        for item in items
    }
