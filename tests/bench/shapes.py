"""The clusters of the benchmark."""

from tests.bench.cluster import AFFINITY_SECONDS, Shape

PLAIN = (Shape("1000x10", 1000, 10), Shape("10000x10", 10000, 10), Shape("30000x5", 30000, 5))
SPECIAL = (
    Shape("one of 5000", 1001, 10, first_endpoints=5000),
    Shape("sticky 1000x10", 1000, 10, affinity_seconds=AFFINITY_SECONDS),
    Shape("ranges 1000x10", 1000, 10, ranges=10),
)
QUICK = (
    Shape("20x3", 20, 3),
    Shape("60x3", 60, 3),
    Shape("one of 120", 5, 3, first_endpoints=120),
    Shape("sticky 5x3", 5, 3, affinity_seconds=AFFINITY_SECONDS),
    Shape("ranges 5x3", 5, 3, ranges=10),
)
FULL = PLAIN + SPECIAL
