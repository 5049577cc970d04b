"""A Service that each change rewrites last: a node that has programmed it has programmed everything before it.

Services, EndpointSlices and Nodes arrive by three watches, each in order. So the Service has a new port, its slices
have a new target port, and its endpoints have hints for zones, by which the zone of the Node shows.

Its UDP port has one conntrack entry to an endpoint that is removed: once that is deleted, entries have been cleaned.
"""

import re
from itertools import count
from typing import Any

from tests.cluster.api import Api
from tests.cluster.applier import TEST_NAMESPACE
from tests.parity.random_cluster import ZONES
from tests.support.conntrack_entries import Entry
from tests.support.families import VERSIONS
from tests.support.lab.plan import Version

ADDRESSES = {4: "10.97.0.253", 6: "fd00:10:97::fd"}
_ENDPOINTS = {4: "10.244.254.", 6: "fd00:10:244:fe::"}
_PORTS = {
    4: re.compile(r"10\.244\.254\.(\d)(?: \. |:)(\d+)\b"),
    6: re.compile(r"fd00:10:244:fe::(\d)(?: \. |\]:)(\d+)\b"),
}
_CLIENT = {4: ("192.0.2.100", 9), 6: ("2001:db8:1::100", 9)}
# Each number is used once. Endpoints have ports that no other Service uses.
_NUMBERS = count(20001)
_UDP_PORT = 5


class Marker:
    """The Service and its slices, of which each write has other numbers."""

    def __init__(self, api: Api) -> None:
        """Create the objects."""
        self._api = api
        self._zone = ""
        self._number = next(_NUMBERS)
        for item in ({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEST_NAMESPACE}}, *self._objects()):
            api.ensure(item)

    def write(self, zone: str) -> None:
        """Write the next numbers, after everything else; ``zone`` is the node's, "" for none."""
        self._number, self._zone = next(_NUMBERS), zone
        for item in self._objects():
            self._api.replace(item)

    def is_in(self, version: Version, listing: str, *, exactly: bool = True) -> bool:
        """Tell whether the rules of one family have the marker as it was written last.

        If not ``exactly``, they may have endpoints of other zones too.
        """
        zones = [self._zone] if self._zone in ZONES else ZONES
        expected = {str(1 + ZONES.index(zone)) for zone in zones}
        found = {zone for zone, port in _PORTS[version].findall(listing) if int(port) == self._target}
        has_endpoints = found == expected if exactly else found >= expected
        return has_endpoints and re.search(rf"\b{self._number}\b", listing) is not None

    @property
    def stale_entries(self) -> list[Entry]:
        """The conntrack entries of both families that the next write makes stale: they are to the current target."""
        return [
            Entry("UDP", _CLIENT[version], (ADDRESSES[version], _UDP_PORT), (f"{_ENDPOINTS[version]}1", self._target))
            for version in VERSIONS
        ]

    @property
    def _target(self) -> int:
        return self._number + 20000

    def _objects(self) -> list[dict[str, Any]]:
        addresses = list(ADDRESSES.values())
        ports = [
            {"name": "marker", "protocol": "TCP", "port": self._number},
            {"name": "marker-udp", "protocol": "UDP", "port": _UDP_PORT},
        ]
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "parity", "namespace": TEST_NAMESPACE},
            "spec": {
                "clusterIP": addresses[0],
                "clusterIPs": addresses,
                "ipFamilyPolicy": "RequireDualStack",
                "ports": ports,
            },
        }
        return [service, *(self._slice(version) for version in VERSIONS)]

    def _slice(self, version: Version) -> dict[str, Any]:
        labels = {"kubernetes.io/service-name": "parity"}
        return {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": f"parity-{version}", "namespace": TEST_NAMESPACE, "labels": labels},
            "addressType": f"IPv{version}",
            "ports": [
                {"name": "marker", "protocol": "TCP", "port": self._target},
                {"name": "marker-udp", "protocol": "UDP", "port": self._target},
            ],
            "endpoints": [
                {"addresses": [f"{_ENDPOINTS[version]}{number}"], "hints": {"forZones": [{"name": zone}]}}
                for number, zone in enumerate(ZONES, 1)
            ],
        }
