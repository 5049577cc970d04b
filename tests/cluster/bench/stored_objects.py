"""Copies of objects as the API server stores them in etcd: creating each through the API server takes ten times longer.

A Service also has an IPAddress, which the API server creates with it.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from tests.cluster.churn.numbered_endpoints import cluster_ip, endpoint_slice, service
from tests.cluster.desired import key_of

Stored = tuple[str, dict[str, Any]]
"""A key in etcd, without ``/registry``, and the object."""
_KINDS = ("IPAddress", "Service", "EndpointSlice")


def stored_keys(index: int) -> dict[str, str]:
    """Return the keys of a Service's three objects by kind."""
    _, namespace, name = key_of(service(index))
    return {
        "IPAddress": f"/ipaddresses/{cluster_ip(index)}",
        "Service": f"/services/specs/{namespace}/{name}",
        "EndpointSlice": f"/endpointslices/{namespace}/{name}",
    }


def copies(
    templates: dict[str, dict[str, Any]], indexes: Iterable[int], numbers: dict[int, list[int]], triggered: str
) -> Iterator[Stored]:
    """Yield the objects of other Services; ``templates`` are those of one Service that the API server created."""
    for index in indexes:
        sent = {
            "IPAddress": _ip_address(templates["IPAddress"], index),
            "Service": _service(templates["Service"], index),
            "EndpointSlice": endpoint_slice(index, numbers[index], triggered),
        }
        keys = stored_keys(index)
        for number, kind in enumerate(_KINDS):
            template, item = templates[kind], sent[kind]
            uid = f"{number:08x}-0000-4000-8000-{index:012x}"
            yield keys[kind], {**template, **item, "metadata": {**template["metadata"], **item["metadata"], "uid": uid}}


def _service(template: dict[str, Any], index: int) -> dict[str, Any]:
    item, address = service(index), cluster_ip(index)
    return {**item, "spec": {**template["spec"], "clusterIP": address, "clusterIPs": [address]}}


def _ip_address(template: dict[str, Any], index: int) -> dict[str, Any]:
    reference = {**template["spec"]["parentRef"], "name": service(index)["metadata"]["name"]}
    return {"metadata": {"name": cluster_ip(index)}, "spec": {"parentRef": reference}}
