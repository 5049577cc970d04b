"""Writes kubeconfigs, and the files of a ServiceAccount in a pod."""

from pathlib import Path
from typing import Any

import yaml

from knft.apiserver.in_cluster import PodEnvironment
from knft.configuration.settings import ClientSettings
from tests.support.certificates import CertificateAuthority
from tests.support.fake_api.cluster import FakeCluster, service
from tests.support.fake_api.server import FakeApiServer


def one_service_cluster() -> FakeCluster:
    cluster = FakeCluster()
    cluster.put("services", service("web", 1))
    return cluster


def write_kubeconfig(folder: Path, **fields: Any) -> Path:
    """Write a kubeconfig; ``cluster``, ``user`` and ``context`` replace the defaults; other fields are added."""
    cluster = fields.pop("cluster", {"server": "https://127.0.0.1:6443"})
    user = fields.pop("user", {"token": "secret-token"})
    context = fields.pop("context", {"cluster": "home", "user": "me"})
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "home", "cluster": cluster}],
        "users": [{"name": "me", "user": user}],
        "contexts": [{"name": "here", "context": context}],
    } | fields
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump({key: value for key, value in document.items() if value is not ...}))
    return path


def insecure_settings(kubeconfig: Path, **fields: Any) -> ClientSettings:
    """Return settings that allow credentials without TLS: most fake API servers have no certificate."""
    return ClientSettings(kubeconfig=str(kubeconfig), sends_credentials_without_tls=True, **fields)


PLUGIN_VERSION = "client.authentication.k8s.io/v1"
TWO_LINE_TOKEN = "first-secret\nsecond-secret"  # noqa: S105 - of a test
MULTI_LINE_ERROR = "the token has more than one line"


def write_in_cluster_files(
    folder: Path, server: FakeApiServer, authority: CertificateAuthority, token: str
) -> PodEnvironment:
    """Write token and CA as a projected volume does: behind a symbolic link that is replaced."""
    in_cluster = PodEnvironment(
        str(folder / "token"),
        str(folder / "ca.crt"),
        {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(server.server_port)},
    )
    replace_in_cluster_files(folder, authority, token)
    for name in ("token", "ca.crt"):
        (folder / name).symlink_to(Path("..data", name))
    return in_cluster


def replace_in_cluster_files(folder: Path, authority: CertificateAuthority, token: str) -> None:
    """Replace token and CA at once, as a projected volume does."""
    version = folder / f"..version-{len(list(folder.iterdir()))}"
    version.mkdir()
    (version / "token").write_text(token)
    (version / "ca.crt").write_bytes(authority.path.read_bytes())
    link = folder / "..next"
    link.symlink_to(version.name)
    link.rename(folder / "..data")
