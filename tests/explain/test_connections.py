"""Which conntrack entries count for a Service port: those to its own frontends."""

from collections.abc import Iterator

from knft.explain.connections import ConnectionCount, with_connections
from knft.families import Family
from knft.model.plan import FrontendKey
from tests.support.explain_sources import explained, of_objects, of_rules, served
from tests.support.kube_objects import service_port

ENDPOINT = "10.244.2.11:8080"
CLUSTER_IP: FrontendKey = ("10.96.0.12", "TCP", 80)
NODE_PORT: FrontendKey = (None, "TCP", 30080)
CONTESTED: FrontendKey = ("203.0.113.5", "TCP", 80)
OBJECTS = (
    *served("rival", "10.96.0.11", external_ips=("203.0.113.5",)),
    *served(
        "web",
        "10.96.0.12",
        type="NodePort",
        ports=(service_port(node_port=30080),),
        external_ips=("203.0.113.5",),
    ),
)


def test_connections_to_own_frontends_count() -> None:
    """A NodePort has no address, and a contested frontend belongs to its owner."""
    asked: list[frozenset[FrontendKey]] = []

    def count(family: Family, keys: frozenset[FrontendKey]) -> Iterator[ConnectionCount]:
        assert family is Family.IPV4
        asked.append(keys)
        for number, key in ((1, CLUSTER_IP), (20, NODE_PORT), (300, CONTESTED), (4000, ("10.96.0.11", "TCP", 80))):
            yield ConnectionCount(key, ENDPOINT, number)

    for source in (of_objects(*OBJECTS), of_rules(*OBJECTS)):
        (port,) = with_connections(explained("web", source), count).ports
        assert (port.connections, [each.connections for each in port.endpoints]) == (21, [21])
        assert asked.pop() == {CLUSTER_IP, NODE_PORT}
