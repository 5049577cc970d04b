"""Applier: has the API server hold exactly some objects, and etcd what the API server of today would refuse."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from tests.cluster.api import INVALID, Api, ApiError
from tests.cluster.cluster import Cluster
from tests.cluster.desired import KINDS, SCENARIO_SERVICE_CIDR, DesiredObject, Key, desired_objects, key_of
from tests.support.waiting import wait_until

TEST_NAMESPACE = "apart"
"""The namespace of what the tests have for themselves: it is not looked at here."""
_OWN_SERVICE: Key = ("Service", "default", "kubernetes")
_OWN_RANGE: Key = ("ServiceCIDR", "", "kubernetes")
_PREFIXES = {
    "Service": "/services/specs/",
    "EndpointSlice": "/endpointslices/",
    "Node": "/minions/",
    "ServiceCIDR": "/servicecidrs/",
}


class Applier:
    """The API server's objects of the kinds that knft follows, but for those that it keeps for itself."""

    def __init__(self, cluster: Cluster) -> None:
        """Prepare; nothing is changed."""
        self._api: Api = cluster.api
        self._store = cluster.etcd_store
        self.refused: dict[Key, str] = {}
        """What the API server has refused of the last objects, and why: etcd was given it all the same."""

    def apply(self, objects: Sequence[dict[str, Any]], *, with_range: bool = True) -> None:
        """Have these objects, written as manifests, and no others; ``with_range`` is whether cluster IPs have one."""
        self.refused = {}
        wanted = desired_objects(objects, with_range=with_range)
        held = self.list_objects()
        # What others will be given has to be free first.
        for key in [key for key in held if key not in wanted or _is_another(held[key], wanted[key])]:
            self._delete(held.pop(key))
        for namespace in {namespace for _, namespace, _ in wanted if namespace}:
            self._ensure_namespace(namespace)
        for key, one in wanted.items():
            self._put(key, one, held.get(key))

    def add(self, item: dict[str, Any]) -> None:
        """Have one object more."""
        for key, one in desired_objects([item], with_range=False).items():
            self._put(key, one, self.list_objects().get(key))

    def list_objects(self) -> dict[Key, dict[str, Any]]:
        """Return the objects that there are, as the API server says them."""
        found = {key_of(item): item for kind in KINDS for item in self._api.list(kind)}
        return {
            key: item
            for key, item in found.items()
            if key not in (_OWN_SERVICE, _OWN_RANGE) and key[1] != TEST_NAMESPACE
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
            self._store.put(_place(key), _stored(one, before))
            return
        if one.dated:
            now["metadata"]["creationTimestamp"] = one.created
            self._store.put(_place(key), now)
        if before is None and key == key_of(SCENARIO_SERVICE_CIDR):
            self._until_range_serves()

    def _until_range_serves(self) -> None:
        """Return when cluster IPs of scenarios can be had: the API server hears of its own objects a little later."""
        addresses = {"clusterIP": "10.96.200.1", "clusterIPs": ["10.96.200.1", "fd00:10:96::c801"]}
        spec = {**addresses, "ipFamilyPolicy": "RequireDualStack", "ports": [{"port": 1}]}
        probe = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "probe-of-the-range"}, "spec": spec}
        wait_until(lambda: self._can_be_made(probe), "the API server gives no cluster IPs of scenarios' range")
        self._api.delete(probe)

    def _can_be_made(self, item: dict[str, Any]) -> bool:
        try:
            self._api.create(item)
        except ApiError:
            return False
        return True

    def _delete(self, item: dict[str, Any]) -> None:
        try:
            self._api.delete(item)
        except ApiError:
            # It was never asked about this one.
            self._store.delete(_place(key_of(item)))

    def _ensure_namespace(self, name: str) -> None:
        with suppress(ApiError):
            self._api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})


def _place(key: Key) -> str:
    """Return where etcd has an object."""
    kind, namespace, name = key
    return _PREFIXES[kind] + (f"{namespace}/{name}" if namespace else name)


def _stored(one: DesiredObject, before: dict[str, Any] | None) -> dict[str, Any]:
    """Return an object as an API server of other rules would have left it."""
    metadata = {**(before or {}).get("metadata", {}), **one.item["metadata"]}
    metadata.setdefault("uid", f"00000000-0000-0000-0000-{abs(hash(one.item['metadata']['name'])) % 10**12:012}")
    metadata["creationTimestamp"] = one.created if one.dated else metadata.get("creationTimestamp")
    metadata.pop("resourceVersion", None)
    status = {} if one.status is None else {"status": one.status}
    return {**one.item, "metadata": metadata, **status}


def _is_another(held: dict[str, Any], wanted: DesiredObject) -> bool:
    """Tell whether an object cannot become another, but has to be deleted and made anew."""
    if held["kind"] == "Node":
        return bool(held["spec"].get("podCIDRs", []) != wanted.item.get("spec", {}).get("podCIDRs", []))
    return any(_unlike(held, wanted.item, names) for names in _LASTING[held["kind"]])


_LASTING: dict[str, Iterable[tuple[str, str]]] = {
    "Service": (("spec", "clusterIP"), ("spec", "clusterIPs"), ("spec", "ipFamilies")),
    "EndpointSlice": (("addressType", ""),),
    "ServiceCIDR": (("spec", "cidrs"),),
}


def _unlike(held: dict[str, Any], wanted: dict[str, Any], names: tuple[str, str]) -> bool:
    """Tell whether both say something of a field, and not the same."""
    for name in filter(None, names):
        held, wanted = (held or {}).get(name), (wanted or {}).get(name)  # type: ignore[assignment]
    return bool(held) and bool(wanted) and held != wanted
