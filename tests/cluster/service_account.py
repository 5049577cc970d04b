"""knft's ServiceAccount of ``deploy/kustomize/base/rbac.yaml``, its tokens, and a volume with a token as in a pod."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.api import Api, ApiError, path_of
from tests.cluster.cluster import ADDRESS, ISSUER, Cluster

MANIFEST = Path(__file__).parent.parent.parent / "deploy" / "kustomize" / "base" / "rbac.yaml"
MIN_TOKEN_SECONDS = 600
"""The shortest lifetime of a token that the API server issues, in seconds."""
_LEEWAY = 60
"""Seconds for which the API server accepts an expired token, because clocks differ."""


def manifest_objects() -> Iterator[dict[str, Any]]:
    """Yield the objects of ``deploy/kustomize/base/rbac.yaml``."""
    yield from yaml.safe_load_all(MANIFEST.read_text())


class ServiceAccount:
    """The ServiceAccount in a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        """Create the account, its role and its binding, or restore them as in the file."""
        self._cluster = cluster
        for item in manifest_objects():
            cluster.api.ensure(item)
        (self._account,) = (item for item in manifest_objects() if item["kind"] == "ServiceAccount")

    @property
    def name(self) -> str:
        """Its user name in RBAC."""
        metadata = self._account["metadata"]
        return f"system:serviceaccount:{metadata['namespace']}:{metadata['name']}"

    def token(self, seconds: int = MIN_TOKEN_SECONDS) -> str:
        """Request a token from the API server."""
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": seconds},
        }
        return str(self._cluster.api.call("POST", path_of(self._account) + "/token", request)["status"]["token"])

    def short_lived_token(self, seconds: float) -> str:
        """Return a token with a shorter lifetime than the API server issues, signed with its key."""
        metadata, now = self._cluster.api.get(self._account)["metadata"], time.time()
        bound = {"namespace": metadata["namespace"], "serviceaccount": {key: metadata[key] for key in ("name", "uid")}}
        claims = {"iss": ISSUER, "aud": [ISSUER], "sub": self.name, "kubernetes.io": bound}
        times = {
            "iat": int(now) - MIN_TOKEN_SECONDS,
            "nbf": int(now) - MIN_TOKEN_SECONDS,
            "exp": int(now + seconds) - _LEEWAY,
        }
        return self._cluster.keys.token(claims | times)

    def client(self, token: str | None = None) -> Api:
        """Return a client that uses a token of the account."""
        return self._cluster.token_client(token or self.token())

    def is_accepted(self, token: str) -> bool:
        """Tell whether the API server accepts a token."""
        try:
            self.client(token).call("GET", "/version")
        except ApiError as error:
            if error.status != 401:
                raise
            return False
        return True


class TokenVolume:
    """A pod's ServiceAccount folder: its files are replaced all at once, by one rename."""

    def __init__(self, folder: Path, ca: Path, token: str) -> None:
        """Write the first files."""
        self.folder = folder
        self._ca = ca
        self._writes = 0
        folder.mkdir()
        self.replace(token)
        for name in ("token", "ca.crt", "namespace"):
            (folder / name).symlink_to(f"..data/{name}")

    def replace(self, token: str, ca: Path | None = None) -> None:
        """Replace the files, as the kubelet does."""
        self._writes += 1
        self._ca = ca or self._ca
        made = self.folder / f"..{self._writes}"
        made.mkdir()
        for name, content in (("token", token), ("ca.crt", self._ca.read_text()), ("namespace", "kube-system")):
            (made / name).write_text(content)
        link = self.folder / "..data_tmp"
        link.symlink_to(made.name)
        link.rename(self.folder / "..data")


def kubeconfig(path: Path, volume: TokenVolume) -> Path:
    """Write a kubeconfig that names the files of a volume, as kubeadm does for kube-proxy."""
    files = {name: str(volume.folder / name) for name in ("ca.crt", "token")}
    named = {
        "clusters": [{"name": "tests", "cluster": {"server": ADDRESS, "certificate-authority": files["ca.crt"]}}],
        "users": [{"name": "knft", "user": {"tokenFile": files["token"]}}],
        "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "knft"}}],
    }
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", "current-context": "tests", **named}))
    return path
