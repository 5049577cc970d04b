"""The objects of a fake cluster, and their history, which can be compacted."""

import threading
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

Object = dict[str, Any]
Selector = Callable[[Object], bool]


class HistoryEntry(NamedTuple):
    """One change of an object."""

    version: int
    before: Object | None
    after: Object | None


class FakeCluster:
    """Objects by collection, such as ``services``, and by namespace and name."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.version = 100
        self.compacted = 0
        self.objects: dict[str, dict[tuple[str, str], Object]] = {}
        self._history: dict[str, list[HistoryEntry]] = {}

    def put(self, collection: str, found: Object) -> Object:
        """Add or replace an object; return it with its new resource version."""
        return self._record(collection, found, found)

    def remove(self, collection: str, name: str, namespace: str = "default") -> None:
        """Remove an object."""
        self._record(collection, self.objects[collection][namespace, name], None)

    def _record(self, collection: str, found: Object, after: Object | None) -> Object:
        with self.changed:
            self.version += 1
            key = (found["metadata"].get("namespace", ""), found["metadata"]["name"])
            current = self.objects.setdefault(collection, {})
            before = current.pop(key, None)
            found = {**found, "metadata": {**found["metadata"], "resourceVersion": str(self.version)}}
            if after is not None:
                current[key] = found
            self._history.setdefault(collection, []).append(
                HistoryEntry(self.version, before, found if after is not None else None)
            )
            self.changed.notify_all()
            return found

    def compact(self) -> None:
        """Delete the history."""
        with self.changed:
            self.version += 1
            self.compacted = self.version
            self._history.clear()

    def selected(self, collection: str, wanted: Selector) -> list[Object]:
        """Return the selected objects."""
        with self.changed:
            return [found for found in self.objects.get(collection, {}).values() if wanted(found)]

    def events_since(self, collection: str, version: int, wanted: Selector) -> list[tuple[int, str, Object]]:
        """Return resource version, type and object of each event of the selected objects after a version."""
        with self.changed:
            history: Iterable[HistoryEntry] = self._history.get(collection, ())
            return [event for item in history if item.version > version and (event := _event(item, wanted))]


def _event(item: HistoryEntry, wanted: Selector) -> tuple[int, str, Object] | None:
    was = item.before is not None and wanted(item.before)
    is_now = item.after is not None and wanted(item.after)
    if is_now and item.after is not None:
        return item.version, "MODIFIED" if was else "ADDED", item.after
    if was and item.before is not None:
        gone = item.after or item.before
        return item.version, "DELETED", {**gone, "metadata": {**gone["metadata"], "resourceVersion": str(item.version)}}
    return None


def service(name: str, number: int = 1, namespace: str = "default", **spec: Any) -> Object:
    """Return a Service as an API server sends it."""
    return {
        "kind": "Service",
        "apiVersion": "v1",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"00000000-0000-4000-8000-{number:012d}",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app": name},
            "managedFields": [{"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:spec": {"f:ports": {}}}}],
        },
        "spec": {
            "clusterIP": f"10.96.{number >> 8}.{number & 255}",
            "clusterIPs": [f"10.96.{number >> 8}.{number & 255}"],
            "ipFamilies": ["IPv4"],
            "type": "ClusterIP",
            "selector": {"app": name},
            "sessionAffinity": "None",
            "ports": [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080}],
        }
        | spec,
        "status": {"loadBalancer": {}},
    }


def endpoint_slice(name: str, of: str, *addresses: str, namespace: str = "default") -> Object:
    """Return an EndpointSlice of a Service."""
    return {
        "kind": "EndpointSlice",
        "apiVersion": "discovery.k8s.io/v1",
        "metadata": {"name": name, "namespace": namespace, "labels": {"kubernetes.io/service-name": of}},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": [
            {"addresses": [address], "conditions": {"ready": True}, "nodeName": "node-1"} for address in addresses
        ],
    }


def node(name: str = "node-1", *addresses: str, **spec: Any) -> Object:
    """Return a Node."""
    return {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {"name": name},
        "spec": spec,
        "status": {"addresses": [{"type": "InternalIP", "address": address} for address in addresses]},
    }


def service_cidr(name: str, *cidrs: str) -> Object:
    """Return a ServiceCIDR."""
    return {
        "kind": "ServiceCIDR",
        "apiVersion": "networking.k8s.io/v1",
        "metadata": {"name": name},
        "spec": {"cidrs": list(cidrs)},
    }
