"""Applier: makes the API server store exactly the given objects; those that it refuses are written to etcd."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from tests.cluster.api import INVALID, Api, ApiError
from tests.cluster.cluster import Cluster
from tests.cluster.desired import KINDS, SCENARIO_SERVICE_CIDR, DesiredObject, Key, desired_objects, key_of
from tests.support.waiting import wait_until

TEST_NAMESPACE = "apart"
"""The namespace of the tests' own objects, which an Applier ignores."""
_KUBERNETES_SERVICE: Key = ("Service", "default", "kubernetes")
_DEFAULT_SERVICE_CIDR: Key = ("ServiceCIDR", "", "kubernetes")
_PREFIXES = {
    "Service": "/services/specs/",
    "EndpointSlice": "/endpointslices/",
    "Node": "/minions/",
    "ServiceCIDR": "/servicecidrs/",
}


class Applier:
    """The objects of the kinds that knft watches, except those that the API server creates."""

    def __init__(self, cluster: Cluster) -> None:
        """Change nothing yet."""
        self._api: Api = cluster.api
        self._store = cluster.etcd_store
        self.refused: dict[Key, str] = {}
        """The objects of the last call that the API server refused, with its reason; they were written to etcd."""

    def apply(self, objects: Sequence[dict[str, Any]], *, with_service_cidr: bool = True) -> None:
        """Make the API server hold exactly these manifests, and a ServiceCIDR if ``with_service_cidr``."""
        self.refused = {}
        desired = desired_objects(objects, with_service_cidr=with_service_cidr)
        existing = self.list_objects()
        # Addresses and ports of removed objects have to be free before others can use them.
        for key in [key for key in existing if key not in desired or _must_recreate(existing[key], desired[key])]:
            self._delete(existing.pop(key))
        for namespace in {namespace for _, namespace, _ in desired if namespace}:
            self._ensure_namespace(namespace)
        for key, one in desired.items():
            self._put(key, one, existing.get(key))

    def add(self, item: dict[str, Any]) -> None:
        """Add one object."""
        for key, one in desired_objects([item], with_service_cidr=False).items():
            self._put(key, one, self.list_objects().get(key))

    def list_objects(self) -> dict[Key, dict[str, Any]]:
        """Return the existing objects, as the API server returns them."""
        found = {key_of(item): item for kind in KINDS for item in self._api.list(kind)}
        return {
            key: item
            for key, item in found.items()
            if key not in (_KUBERNETES_SERVICE, _DEFAULT_SERVICE_CIDR) and key[1] != TEST_NAMESPACE
        }

    def _put(self, key: Key, one: DesiredObject, before: dict[str, Any] | None) -> None:
        try:
            now = self._api.create(one.item) if before is None else self._api.replace(one.item)
            if one.status is not None and now.get("status") != one.status:
                now = self._api.replace({**now, "status": one.status}, "/status")
        except ApiError as error:
            if error.status != INVALID:
                raise
            self.refused[key] = str(error)
            self._store.put(_etcd_key(key), _stored(one, before))
            return
        if one.dated:
            now["metadata"]["creationTimestamp"] = one.created
            self._store.put(_etcd_key(key), now)
        if before is None and key == key_of(SCENARIO_SERVICE_CIDR):
            self._wait_service_cidr()

    def _wait_service_cidr(self) -> None:
        """Wait until scenarios' cluster IPs can be allocated, some time after the ServiceCIDR's creation."""
        addresses = {"clusterIP": "10.96.200.1", "clusterIPs": ["10.96.200.1", "fd00:10:96::c801"]}
        spec = {**addresses, "ipFamilyPolicy": "RequireDualStack", "ports": [{"port": 1}]}
        probe = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "probe-of-the-range"}, "spec": spec}
        wait_until(lambda: self._is_accepted(probe), "the API server gives no cluster IPs of scenarios' range")
        self._api.delete(probe)

    def _is_accepted(self, item: dict[str, Any]) -> bool:
        try:
            self._api.create(item)
        except ApiError:
            return False
        return True

    def _delete(self, item: dict[str, Any]) -> None:
        try:
            self._api.delete(item)
        except ApiError:
            # It was written to etcd, and the API server refuses to delete it.
            self._store.delete(_etcd_key(key_of(item)))

    def _ensure_namespace(self, name: str) -> None:
        with suppress(ApiError):
            self._api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})


def _etcd_key(key: Key) -> str:
    """Return the key of an object in etcd."""
    kind, namespace, name = key
    return _PREFIXES[kind] + (f"{namespace}/{name}" if namespace else name)


def _stored(one: DesiredObject, before: dict[str, Any] | None) -> dict[str, Any]:
    """Return an object as an API server without this validation would have stored it."""
    metadata = {**(before or {}).get("metadata", {}), **one.item["metadata"]}
    metadata.setdefault("uid", f"00000000-0000-0000-0000-{abs(hash(one.item['metadata']['name'])) % 10**12:012}")
    metadata["creationTimestamp"] = one.created if one.dated else metadata.get("creationTimestamp")
    metadata.pop("resourceVersion", None)
    status = {} if one.status is None else {"status": one.status}
    return {**one.item, "metadata": metadata, **status}


def _must_recreate(existing: dict[str, Any], desired: DesiredObject) -> bool:
    """Tell whether an object has to be deleted and created again, because fields cannot be changed."""
    if existing["kind"] == "Node":
        return bool(existing["spec"].get("podCIDRs", []) != desired.item.get("spec", {}).get("podCIDRs", []))
    return any(_differs(existing, desired.item, names) for names in _IMMUTABLE[existing["kind"]])


_IMMUTABLE: dict[str, Iterable[tuple[str, str]]] = {
    "Service": (("spec", "clusterIP"), ("spec", "clusterIPs"), ("spec", "ipFamilies")),
    "EndpointSlice": (("addressType", ""),),
    "ServiceCIDR": (("spec", "cidrs"),),
}


def _differs(existing: dict[str, Any], desired: dict[str, Any], names: tuple[str, str]) -> bool:
    """Tell whether both objects have a field, with different values."""
    for name in filter(None, names):
        existing, desired = (existing or {}).get(name), (desired or {}).get(name)  # type: ignore[assignment]
    return bool(existing) and bool(desired) and existing != desired
