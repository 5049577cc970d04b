"""Scenarios: clusters and packets as data, read from ``tests/scenarios/*.yaml``.

A scenario is written once and means both families. In its objects ``$pod`` stands for a pod's address, ``$cluster.N``
for a cluster IP, ``$external.N`` for an external one, ``$node``, ``$node.pods`` (its address towards pods),
``$loopback`` and ``$outside`` for theirs:

* a Service, Node or ServiceCIDR is dual-stack: a list item with a ``$`` becomes two, a scalar is the IPv4 address;
* an EndpointSlice becomes two, one of each family.

What ``Packet`` says is what a file may say of a packet.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec
import yaml

from tests.lab import plan

FOLDER = Path(__file__).parent.parent / "scenarios"
VERSIONS: tuple[plan.Version, ...] = get_args(plan.Version)

DEFAULT_FLAGS = (
    f"--cluster-cidr={plan.CLUSTER.ipv4},{plan.CLUSTER.ipv6}",
    f"--service-cidr={plan.SERVICES.ipv4},{plan.SERVICES.ipv6}",
)
DEFAULT_NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": plan.NODE.node_name, "labels": {"topology.kubernetes.io/zone": "zone-a"}},
    "status": {"addresses": [{"type": "InternalIP", "address": "$node"}]},
}


UNALLOCATED = plan.Subnet("10.96.0", "fd00:10:96").at(99)
"""``$cluster.99``: no Service has it, but the remote node would answer there on port 80."""


class Packet(msgspec.Struct, frozen=True, rename={"client": "from"}, forbid_unknown_fields=True):
    """A connection that is tried, and what has to come of it.

    ``to`` is ``$name:port``. Exactly one outcome: ``answered_by`` lists all endpoints that may answer, each of which
    must do so in the end, with ``source`` telling whether they saw the client's address; ``rejected`` is an ICMP
    message at once; ``dropped`` is silence, and nobody reached. ``unserved`` is a reset by the node itself: nobody
    translated the packet.
    """

    clause: str
    client: str
    to: str
    protocol: Literal["tcp", "udp"] = "tcp"
    answered_by: tuple[str, ...] = ()
    source: Literal["kept", "masqueraded"] = "kept"
    rejected: bool = False
    dropped: bool = False
    unserved: bool = False
    note: str = ""

    def __post_init__(self) -> None:
        """Refuse a packet without an outcome, or with two."""
        outcomes = (bool(self.answered_by), self.rejected, self.dropped, self.unserved)
        if sum(outcomes) != 1:
            msg = f"packet to {self.to} needs exactly one outcome"
            raise ValueError(msg)

    def __str__(self) -> str:
        """Return the packet as a test's name."""
        return f"{self.clause} {self.client} to {self.to}/{self.protocol}"


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A cluster, a node, and packets; ``flags`` are added to the default ones, or replace those of the same name."""

    title: str
    objects: list[dict[str, Any]]
    packets: tuple[Packet, ...]
    flags: tuple[str, ...] = ()
    node: dict[str, Any] = msgspec.field(default_factory=lambda: DEFAULT_NODE)
    name: str = ""

    def manifests(self) -> list[dict[str, Any]]:
        """Return the Kubernetes objects of both families."""
        return [written for item in (self.node, *self.objects) for written in _in_both_families(item)]

    def arguments(self) -> list[str]:
        """Return the flags for knft."""
        given = {flag.partition("=")[0] for flag in self.flags}
        return [flag for flag in DEFAULT_FLAGS if flag.partition("=")[0] not in given] + list(self.flags)

    def listeners(self) -> set[tuple[str, int, str]]:
        """Return who has to listen: host, port and protocol of every endpoint in every slice."""
        return {
            (str(address).removeprefix("$"), port["port"], port.get("protocol", "TCP").lower())
            for item in self.objects
            if item["kind"] == "EndpointSlice"
            for endpoint in item["endpoints"]
            for address in endpoint["addresses"]
            for port in item["ports"]
        }


def read_scenarios() -> list[Scenario]:
    """Return every scenario, in the order of the files' names."""
    return [
        msgspec.structs.replace(
            msgspec.convert(yaml.safe_load(path.read_text()), Scenario, strict=True), name=path.stem
        )
        for path in sorted(FOLDER.glob("*.yaml"))
    ]


def address(name: str, version: plan.Version) -> str:
    """Return what ``$name`` stands for in a family."""
    return _addresses(name).of(version)


def _addresses(name: str) -> plan.Addresses:
    base, _, number = name.partition(".")
    fixed = {"node": plan.NODE.lan, "outside": plan.OUTSIDE, "remote": plan.REMOTE.lan}
    starts = {"cluster": plan.Subnet("10.96.0", "fd00:10:96"), "external": plan.Subnet("203.0.113", "2001:db8:cb")}
    if name == "node.pods":
        return plan.NODE.gateway
    if name == "loopback":
        return plan.Addresses("127.0.0.1", "::1")
    if base in fixed:
        return fixed[base]
    if base in starts:
        return starts[base].at(int(number))
    prefix, _, pod = name.rpartition("-")
    node = next(node for node in plan.NODES if node.pod_prefix == prefix)
    return node.pod_addresses(int(pod))


def _in_both_families(item: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if item["kind"] != "EndpointSlice":
        yield _dual_service(item) if item["kind"] == "Service" else _dual(item)
        return
    for version in VERSIONS:
        single = _single(item, version)
        name = f"{item['metadata']['name']}-ipv{version}"
        yield {**single, "addressType": f"IPv{version}", "metadata": {**single["metadata"], "name": name}}


def _dual_service(item: dict[str, Any]) -> dict[str, Any]:
    spec = item["spec"]
    if "clusterIPs" in spec or not str(spec.get("clusterIP", "")).startswith("$"):
        return dict(_dual(item))
    both = {"clusterIPs": [spec["clusterIP"]], "ipFamilies": [f"IPv{version}" for version in VERSIONS]}
    return dict(_dual({**item, "spec": {**spec, **both}}))


def _dual(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _dual(item) for key, item in value.items()}
    if isinstance(value, list):
        return [one for item in value for one in (_both(item) if _mentions(item) else [item])]
    return _single(value, 4)


def _both(item: Any) -> list[Any]:
    return [_single(item, version) for version in VERSIONS]


def _mentions(item: Any) -> bool:
    if isinstance(item, dict):
        return any(_mentions(part) for part in item.values())
    if isinstance(item, list):
        return any(_mentions(part) for part in item)
    return isinstance(item, str) and item.startswith("$")


def _single(value: Any, version: plan.Version) -> Any:
    if isinstance(value, dict):
        return {key: _single(item, version) for key, item in value.items()}
    if isinstance(value, list):
        return [_single(item, version) for item in value]
    if isinstance(value, str) and value.startswith("$"):
        return address(value[1:], version)
    return value
