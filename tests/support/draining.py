"""A Service with ``knft.dev/drain: reset`` whose endpoints have different ports, and its connections in conntrack."""

from collections.abc import Collection
from typing import Any

from knft.sync.connection_drainer import MAX_FILTERED_DUMPS
from tests.support.conntrack_entries import add_many_entries
from tests.support.kernel_harness import service, slices
from tests.support.lab.plan import Addresses, Version

NAME = "web"
FRONTEND = Addresses("10.96.0.10", "fd00:10:96::10")
FIRST_PORT = 8081
MANY = range(1, MAX_FILTERED_DUMPS + 2)
"""The numbers of as many endpoints as need a dump of all connections."""
_NUMBERS = range(1, MANY.stop + 1)
_OTHER_ENDPOINT = Addresses("10.244.2.200", "fd00:10:244:2::200")
_FIRST_CLIENTS = Addresses("12.0.0.0", "2001:db8:12::")


def drained_service(version: Version, numbers: Collection[int]) -> list[dict[str, Any]]:
    """Return the Service with these endpoints of one family: 1 with FIRST_PORT, 2 with the next one, up to ten."""
    item = service(NAME, 10)
    objects = [item | {"metadata": item["metadata"] | {"annotations": {"knft.dev/drain": "reset"}}}]
    for number in _NUMBERS:
        found = slices(NAME, {number}.intersection(numbers), port=_port(number))
        (own,) = (each for each in found if each["addressType"] == f"IPv{version}")
        objects.append(own | {"metadata": own["metadata"] | {"name": f"{own['metadata']['name']}-{number}"}})
    return objects


def connect_to_endpoints(version: Version, numbers: Collection[int], count: int) -> None:
    """Create ``count`` entries of the Service's connections to these endpoints."""
    address = Addresses("10.244.2.{}", "fd00:10:244:2::{}").of(version)
    endpoints = [(address.format(number), _port(number)) for number in numbers]
    add_many_entries(count, (FRONTEND.of(version), 80), endpoints, "TCP", _FIRST_CLIENTS.of(version))


def connect_to_other_endpoint(version: Version, count: int) -> None:
    """Create ``count`` entries of connections that no draining ends, to a pod with FIRST_PORT."""
    add_many_entries(count, (FRONTEND.of(version), 80), [(_OTHER_ENDPOINT.of(version), FIRST_PORT)], "TCP")


def _port(number: int) -> int:
    return FIRST_PORT + number - 1
