"""The clusters of the benchmark."""

from collections.abc import Mapping

from msgspec import structs

from tests.bench.cluster import AFFINITY_SECONDS, ServiceSpec, Shape, numbered_ports

PLAIN = (Shape("1000x10", 1000, 10), Shape("10000x10", 10000, 10), Shape("30000x5", 30000, 5))
SPECIAL = (
    Shape("one of 5000", 1001, 10, first_endpoints=5000),
    Shape("sticky 1000x10", 1000, 10, affinity_seconds=AFFINITY_SECONDS),
    Shape("sticky 10000x10", 10000, 10, affinity_seconds=AFFINITY_SECONDS),
    Shape("ranges 1000x10", 1000, 10, ranges=10),
)


def _wide_services(ports: int, addresses: int, vips: int, ranges: int) -> Mapping[str, ServiceSpec]:
    """Return Services whose copies of endpoints or ranges for each frontend would be many, by name."""
    external = ServiceSpec(0, (), ports=numbered_ports(ports), external_ip_count=addresses)
    # Fewer ports, because these Services take long: kube-proxy needs a minute for 100 sticky ports.
    few = numbered_ports(ports // 10)
    return {
        "wide": external,
        "wide dual stack": structs.replace(external, is_dual_stack=True),
        "wide ranges": ServiceSpec(0, (), ports=few, ranges=ranges, vip_count=vips),
        "wide sticky": structs.replace(external, ports=few, affinity_seconds=AFFINITY_SECONDS),
    }


WIDE = tuple(
    Shape(name, 1001, 10, first_endpoints=200, wide=wide)
    for name, wide in _wide_services(ports=100, addresses=50, vips=20, ranges=100).items()
)
QUICK = (
    Shape("20x3", 20, 3),
    Shape("60x3", 60, 3),
    Shape("one of 120", 5, 3, first_endpoints=120),
    Shape("sticky 5x3", 5, 3, affinity_seconds=AFFINITY_SECONDS),
    Shape("ranges 5x3", 5, 3, ranges=10),
    *(
        Shape(f"{name} 5x3", 5, 3, first_endpoints=20, wide=wide)
        for name, wide in _wide_services(ports=10, addresses=20, vips=20, ranges=20).items()
    ),
)
FULL = PLAIN + SPECIAL + WIDE
