"""``$names`` of scenarios, and the expansion of objects that are written once into those of both families.

========================= ======================================================================
``$local-1``, ``$remote-2`` a pod's address
``$node``, ``$remote``      the nodes' addresses; ``$node.pods`` is the node's address towards its pods
``$outside``                the client outside the cluster; ``$outside.101`` is its second address
``$cluster.N``              a cluster IP
``$external.N``             an address for load balancers and external IPs
``$loopback``               127.0.0.1 and ::1
``$lan``, ``$pods``         networks: of the nodes; of all pods
``$node.cidr``              the network of this node's pods
``$services``               the network of cluster IPs
``$any``                    the network of all addresses
========================= ======================================================================

``/host`` after an address makes it a network of one address: ``$outside/host``.
"""

import re
from collections.abc import Iterator
from typing import Any, get_args

from tests.support.lab import plan

VERSIONS: tuple[plan.Version, ...] = get_args(plan.Version)

_NAME = re.compile(r"\$([a-z]+(?:-[0-9]+)?(?:\.[a-z0-9]+)?)(/host)?")
_HOST_LENGTHS = plan.Addresses("/32", "/128")
_FIXED = {
    "node": plan.NODE.lan,
    "node.pods": plan.NODE.gateway,
    "remote": plan.REMOTE.lan,
    "outside": plan.OUTSIDE,
    "loopback": plan.Addresses("127.0.0.1", "::1"),
    "lan": plan.LAN.cidrs,
    "pods": plan.CLUSTER,
    "node.cidr": plan.NODE.pods.cidrs,
    "services": plan.SERVICES,
    "any": plan.Addresses("0.0.0.0/0", "::/0"),
}
_STARTS = {
    "cluster": plan.Subnet("10.96.0", "fd00:10:96"),
    "external": plan.Subnet("203.0.113", "2001:db8:cb"),
    "outside": plan.LAN,
}


def addresses(name: str) -> plan.Addresses:
    """Return the addresses of ``$name`` in both families."""
    if name in _FIXED:
        return _FIXED[name]
    base, _, number = name.partition(".")
    if base in _STARTS:
        return _STARTS[base].at(int(number))
    prefix, _, pod = name.rpartition("-")
    node = next(node for node in plan.NODES if node.pod_prefix == prefix)
    return node.pod_addresses(int(pod))


def address(name: str, version: plan.Version) -> str:
    """Return the address of ``$name`` in a family."""
    return addresses(name).of(version)


def in_family(text: str, version: plan.Version) -> str:
    """Replace every ``$name`` in a text."""

    def value(found: re.Match[str]) -> str:
        return address(found[1], version) + (_HOST_LENGTHS.of(version) if found[2] else "")

    return _NAME.sub(value, text)


def in_both(text: str) -> str:
    """Return the texts of both families, joined by a comma, or the text itself if it has no ``$name``."""
    return ",".join(in_family(text, version) for version in VERSIONS) if "$" in text else text


def objects_of_both(item: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the objects of both families for an object of a scenario.

    * An EndpointSlice becomes two, one of each family;
    * any other object is dual-stack: a list item with a ``$name`` becomes one item for each family, and a ``$name``
      outside of lists becomes the IPv4 address;
    * a Service whose ``clusterIP`` is a ``$name`` has it in both families, unless ``ipFamilies`` names some, in order.
    """
    if item["kind"] != "EndpointSlice":
        yield _dual_stack_service(item) if item["kind"] == "Service" else _dual_stack(item)
        return
    for version in VERSIONS:
        single = _in_one_family(item, version)
        name = f"{item['metadata']['name']}-ipv{version}"
        yield {**single, "addressType": f"IPv{version}", "metadata": {**single["metadata"], "name": name}}


def _dual_stack_service(item: dict[str, Any]) -> dict[str, Any]:
    spec = item["spec"]
    name = str(spec.get("clusterIP", ""))
    if "clusterIPs" in spec or not name.startswith("$"):
        return dict(_dual_stack(item))
    families = spec.get("ipFamilies", [f"IPv{version}" for version in VERSIONS])
    cluster_ips = [in_family(name, 4 if family == "IPv4" else 6) for family in families]
    own = {"clusterIP": cluster_ips[0], "clusterIPs": cluster_ips, "ipFamilies": families}
    return dict(_dual_stack({**item, "spec": {**spec, **own}}))


def _dual_stack(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _dual_stack(item) for key, item in value.items()}
    if isinstance(value, list):
        return [one for item in value for one in (_in_each_family(item) if _has_name(item) else [item])]
    return _in_one_family(value, 4)


def _in_each_family(item: Any) -> list[Any]:
    return [_in_one_family(item, version) for version in VERSIONS]


def _has_name(item: Any) -> bool:
    if isinstance(item, dict):
        return any(_has_name(part) for part in item.values())
    if isinstance(item, list):
        return any(_has_name(part) for part in item)
    return isinstance(item, str) and "$" in item


def _in_one_family(value: Any, version: plan.Version) -> Any:
    if isinstance(value, dict):
        return {key: _in_one_family(item, version) for key, item in value.items()}
    if isinstance(value, list):
        return [_in_one_family(item, version) for item in value]
    return in_family(value, version) if isinstance(value, str) else value
