"""Consistent hashing on two nodes: both compute the same tables from the same objects, in whatever order they come."""

from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random

import pytest

from knft.config import Config
from knft.families import Family
from knft.model.annotations import Annotations
from knft.model.objects import EndpointSlice, KubeObject, Service, SliceEndpoint
from knft.nft.objects import Array, ArrayName
from knft.protocols import Protocol
from knft.render.frontends import CLASS_NUMBERS, TrafficClass
from knft.render.layout import HASHED_MAPS
from knft.render.maglev import table_size
from knft.render.names import HASHED_MAP_PREFIX
from tests.support import kube_objects
from tests.support.equivalence import rendered

NODES = ("node-1", "node-2", "node-3")
PROTOCOLS: tuple[Protocol, ...] = ("TCP", "UDP", "SCTP")
ENDPOINTS = {"few": 3, "some": 51, "more": 52}
"""Numbers of endpoints by Service; with 52 the tables are larger than with 51."""


def _service(name: str, number: int, load_balancing: str) -> Service:
    """Return a dual-stack Service with policy Cluster at its cluster IPs, and Local at its NodePorts."""
    addresses = (f"10.96.0.{number}", f"fd00:10:96::{number}")
    return kube_objects.service(
        name,
        annotations=Annotations(load_balancing=load_balancing),
        type="NodePort",
        cluster_ip=addresses[0],
        cluster_ips=addresses,
        ip_families=("IPv4", "IPv6"),
        external_traffic_policy="Local",
        ports=tuple(
            kube_objects.service_port(80, protocol.lower(), protocol, node_port=30000 + number)
            for protocol in PROTOCOLS
        ),
    )


def _endpoints(family: Family, count: int, rng: Random) -> list[SliceEndpoint]:
    """Return endpoints on random nodes; some more are not ready, and no node uses them."""
    address = ("10.244.{}.{}" if family is Family.IPV4 else "fd00:10:244:{}::{}").format
    ready = [kube_objects.endpoint(address(7, number), node=rng.choice(NODES)) for number in range(1, count + 1)]
    return [*ready, *(kube_objects.endpoint(address(8, number), ready=False, node=NODES[0]) for number in (1, 2))]


def _slices(name: str, family: Family, endpoints: Sequence[SliceEndpoint]) -> list[EndpointSlice]:
    """Return three slices; the first endpoint is in two of them."""
    ports = [kube_objects.slice_port(protocol.lower(), 8080, protocol) for protocol in PROTOCOLS]
    parts = ([*endpoints[::3]], [*endpoints[1::3], endpoints[0]], [*endpoints[2::3]])
    return [
        kube_objects.endpoint_slice(f"{name}-{number}", *part, service=name, family=family.value, ports=ports)
        for number, part in enumerate(parts)
    ]


Tables = dict[ArrayName, Array]


def _tables(node: str, objects: Sequence[KubeObject], family: Family) -> Tables:
    """Return the slots of all tables, and the numbers of frontends, as they are on a node."""
    arrays = rendered(objects, None, Config(node))[family].contents.arrays
    return {name: array for name, array in arrays.items() if name.container in HASHED_MAPS}


def _of_class(tables: Tables, traffic_class: TrafficClass) -> Tables:
    """Return the slots of one class."""
    return {
        name: array
        for name, array in tables.items()
        if name.container.startswith(HASHED_MAP_PREFIX) and name.prefix[-1] == CLASS_NUMBERS[traffic_class]
    }


def _shuffled(
    services: Sequence[Service], endpoints: Mapping[str, Sequence[SliceEndpoint]], family: Family, rng: Random
) -> list[KubeObject]:
    """Return the objects in another order, with the endpoints in another order and in other slices."""
    slices = [each for name, some in endpoints.items() for each in _slices(name, family, rng.sample(some, len(some)))]
    return rng.sample([*services, *slices], len(services) + len(slices))


@pytest.mark.parametrize("family", Family, ids=lambda family: family.value)
@pytest.mark.parametrize("load_balancing", ["maglev", "source-hash"])
@pytest.mark.parametrize("seed", range(2))
def test_two_nodes_have_the_same_tables_of_policy_cluster(seed: int, load_balancing: str, family: Family) -> None:
    """So are the numbers of frontends. Only the tables of policy Local differ: they have the endpoints of the node."""
    rng = Random(seed)  # noqa: S311 - reproducible
    services = [_service(name, number, load_balancing) for number, name in enumerate(ENDPOINTS, 1)]
    endpoints = {name: _endpoints(family, count, rng) for name, count in ENDPOINTS.items()}
    first, second = (_tables(node, _shuffled(services, endpoints, family, rng), family) for node in NODES[:2])
    sizes = Counter(len(array) for array in _of_class(first, "cluster").values())
    assert sizes == Counter([table_size(count) for count in ENDPOINTS.values()] * len(PROTOCOLS))
    local = _of_class(first, "local")
    assert len(local) == sizes.total()
    assert {name for name in {*first, *second} if first.get(name) != second.get(name)} == set(local)
