"""Marker: a Service that shows when all objects written before it are programmed.

A watch sends the objects of one kind in the order of their changes. When a Service and an EndpointSlice that were
written last are in the node's tables, so are all earlier objects. The endpoints in the tables show which zone knft
uses.
"""

from itertools import count
from typing import Any

from tests.cluster.api import Api
from tests.cluster.applier import TEST_NAMESPACE
from tests.support.lab.namespace import Namespace
from tests.support.waiting import wait_until

_ZONES = ("zone-a", "zone-b", "zone-c")
_ADDRESSES = {4: "10.97.0.254", 6: "fd00:10:97::fe"}
_TABLES = {4: "ip", 6: "ip6"}
_VERSIONS = (4, 6)
# Each number is used once, so that an earlier marker is never mistaken for this one.
_NUMBERS = count(1000)


class Marker:
    """A Service with other ports and endpoints in each write."""

    def __init__(self, api: Api, node: Namespace) -> None:
        """Create the Service; wait for it with ``wait``."""
        self._api, self._node = api, node
        self._number = next(_NUMBERS)
        self._zone = ""
        self._ranges: tuple[str, ...] = ()
        for item in ({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEST_NAMESPACE}}, *self._objects()):
            api.ensure(item)

    def write(self, zone: str, ranges: tuple[str, ...]) -> None:
        """Change the Service after everything else; ``zone`` is the node's, "" for none, ``ranges`` service CIDRs."""
        self._number = next(_NUMBERS)
        self._zone, self._ranges = zone, ranges
        for item in self._objects():
            self._api.replace(item)

    def wait(self, check: Any) -> None:
        """Wait until the marker is programmed; ``check`` is called meanwhile, and raises to end the wait."""
        wait_until(self.is_programmed, "the marker is not programmed", check)

    def is_programmed(self) -> bool:
        """Tell whether the node's tables have the marker."""
        return all(self._in_table(version) == self._expected(version) for version in _VERSIONS)

    def _objects(self) -> list[dict[str, Any]]:
        addresses = list(_ADDRESSES.values())
        spec = {"clusterIP": addresses[0], "clusterIPs": addresses, "ipFamilyPolicy": "RequireDualStack"}
        service = {"apiVersion": "v1", "kind": "Service", "metadata": _metadata("marker")}
        return [
            {**service, "spec": {**spec, "ports": [{"port": self._port}]}},
            *(self._slice(version) for version in _VERSIONS),
        ]

    def _slice(self, version: int) -> dict[str, Any]:
        return {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": _metadata(f"marker-{version}") | {"labels": {"kubernetes.io/service-name": "marker"}},
            "addressType": f"IPv{version}",
            "ports": [{"name": "", "port": self._port}],
            "endpoints": [
                {"addresses": [_endpoint(version, zone)], "hints": {"forZones": [{"name": zone}]}} for zone in _ZONES
            ],
        }

    @property
    def _port(self) -> int:
        return self._number

    def _expected(self, version: int) -> tuple[set[str], set[str]]:
        zones = [self._zone] if self._zone in _ZONES else _ZONES
        family = [item for item in self._ranges if (":" in item) is (version == 6)]
        return {f"{_endpoint(version, zone)} . {self._port}" for zone in zones}, set(family)

    def _in_table(self, version: int) -> tuple[set[str], set[str]]:
        """Return the marker's endpoints and the service CIDRs in the table."""
        listing = self._node.run(["nft", "list", "table", _TABLES[version], "knft"], check=False).stdout
        key = f"{_ADDRESSES[version]} . {self._port} . "
        lines = [line.strip(" \t,{}").removeprefix("elements = { ") for line in listing.splitlines()]
        endpoints = {line.partition(" : ")[2].strip(" ,}") for line in lines if line.startswith(key)}
        _, _, ranges = listing.partition("set service-cidrs {")
        _, _, elements = ranges.partition("}")[0].partition("elements = {")
        return endpoints, {word.strip() for word in elements.split(",") if word.strip()}


def _metadata(name: str) -> dict[str, Any]:
    return {"name": name, "namespace": TEST_NAMESPACE}


def _endpoint(version: int, zone: str) -> str:
    number = 1 + _ZONES.index(zone)
    return f"10.244.255.{number}" if version == 4 else f"fd00:10:244:ff::{number}"
