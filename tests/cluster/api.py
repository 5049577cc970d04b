"""A client of the API server: the kubernetes package, with connections in the cluster's network namespace."""

import json
from typing import Any

import kubernetes
import urllib3

from tests.support.lab.namespace import Namespace

_PATHS = {
    "Namespace": ("/api/v1", "namespaces", False),
    "Node": ("/api/v1", "nodes", False),
    "Service": ("/api/v1", "services", True),
    "Secret": ("/api/v1", "secrets", True),
    "ServiceAccount": ("/api/v1", "serviceaccounts", True),
    "EndpointSlice": ("/apis/discovery.k8s.io/v1", "endpointslices", True),
    "ServiceCIDR": ("/apis/networking.k8s.io/v1", "servicecidrs", False),
    "ClusterRole": ("/apis/rbac.authorization.k8s.io/v1", "clusterroles", False),
    "ClusterRoleBinding": ("/apis/rbac.authorization.k8s.io/v1", "clusterrolebindings", False),
    "Event": ("/apis/events.k8s.io/v1", "events", True),
}
_TIMEOUT = 30.0
_MISSING = 404
INVALID = 422
"""The HTTP status of an object that the API server refuses as invalid."""


class ApiError(Exception):
    """The API server refused a request; ``status`` is the HTTP status, 0 if there was no response."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class Api:
    """One user's client."""

    def __init__(self, namespace: Namespace, configuration: kubernetes.client.Configuration) -> None:
        """Send nothing yet."""
        self._namespace = namespace
        self._host = configuration.host
        # The package's connection pool with its certificates, which all its versions have.
        self._pool: urllib3.PoolManager = kubernetes.client.ApiClient(configuration).rest_client.pool_manager
        token = configuration.get_api_key_with_prefix("BearerToken")
        self._headers = {"Accept": "application/json"} | ({"Authorization": token} if token else {})

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Send one request and return the decoded response; raise ApiError if it is refused or fails."""
        headers = self._headers | {"Content-Type": "application/json"}
        sent = None if body is None else json.dumps(body)
        try:
            with self._namespace.entered():
                answer = self._pool.request(
                    method, self._host + path, body=sent, headers=headers, timeout=_TIMEOUT, retries=False
                )
        except urllib3.exceptions.HTTPError as error:
            raise ApiError(0, str(error)) from error
        if answer.status >= 400:
            raise ApiError(answer.status, _message(answer.data))
        return json.loads(answer.data) if answer.data.startswith(b"{") else answer.data.decode()

    def ready(self) -> bool:
        """Tell whether the API server has finished its start."""
        try:
            return bool(self.call("GET", "/readyz") == "ok")
        except ApiError:
            return False

    def create(self, item: dict[str, Any]) -> dict[str, Any]:
        """Create an object; return the created one."""
        return dict(self.call("POST", collection(item["kind"], namespace_of(item)), item))

    def replace(self, item: dict[str, Any], subresource: str = "") -> dict[str, Any]:
        """Replace an object, or a subresource such as ``/status``."""
        return dict(self.call("PUT", path_of(item) + subresource, item))

    def ensure(self, item: dict[str, Any]) -> None:
        """Create an object, or replace it."""
        # Creating it first would not help: an existing Service holds the cluster IP.
        try:
            self.get(item)
        except ApiError as error:
            if error.status != _MISSING:
                raise
            self.create(item)
        else:
            self.replace(item)

    def get(self, item: dict[str, Any]) -> dict[str, Any]:
        """Return the current object."""
        return dict(self.call("GET", path_of(item)))

    def delete(self, item: dict[str, Any]) -> None:
        """Delete an object."""
        self.call("DELETE", path_of(item))

    def list(self, kind: str) -> list[dict[str, Any]]:
        """Return all objects of a kind, in all namespaces, with kind and apiVersion."""
        version, _, _ = _PATHS[kind]
        found = self.call("GET", collection(kind, None))
        group = version.removeprefix("/apis/").removeprefix("/api/")
        return [{"apiVersion": group, "kind": kind, **item} for item in found["items"]]


def namespace_of(item: dict[str, Any]) -> str:
    """Return the namespace of an object, ``default`` if it has none."""
    return str(item["metadata"].get("namespace", "default"))


def collection(kind: str, namespace: str | None) -> str:
    """Return the path of all objects of a kind, in one namespace or in all."""
    version, resource, namespaced = _PATHS[kind]
    return f"{version}/namespaces/{namespace}/{resource}" if namespaced and namespace else f"{version}/{resource}"


def path_of(item: dict[str, Any]) -> str:
    """Return the path of an object."""
    return f"{collection(item['kind'], namespace_of(item))}/{item['metadata']['name']}"


def _message(body: bytes) -> str:
    try:
        return str(json.loads(body)["message"])
    except (TypeError, ValueError, KeyError):
        return body.decode(errors="replace")
