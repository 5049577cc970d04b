"""Which conntrack entries ``knft explain --connections`` counts for a frontend."""

import pytest

from knft.comparison.entries import frontend_connections
from knft.explain.connections import ConnectionCount
from knft.families import Family
from knft.model.plan import FrontendKey
from tests.support.conntrack_entries import Entry, add_entries
from tests.support.lab.namespace import Namespace
from tests.support.loaded_examples import ADDRESSES

pytestmark = pytest.mark.kernel

SERVICE = {Family.IPV4: "10.96.0.10", Family.IPV6: "fd00:10:96::10"}
POD = {Family.IPV4: "10.244.1.11", Family.IPV6: "fd00:10:244:1::11"}
CLIENT = {Family.IPV4: "192.0.2.100", Family.IPV6: "2001:db8:1::100"}
NODE = dict(zip(Family, ADDRESSES, strict=True))


@pytest.mark.parametrize("family", Family)
def test_translated_connections_to_a_frontend_count(node: Namespace, family: Family) -> None:
    """Those to a NodePort at each address of the machine; pods may have servers at that port, too."""
    service, pod, node_port = (SERVICE[family], 80), (POD[family], 8080), (NODE[family], 30080)
    with node.entered():
        add_entries(
            [
                Entry("TCP", (CLIENT[family], 1001), service, pod),
                Entry("TCP", (CLIENT[family], 1002), node_port, pod),
                Entry("TCP", (CLIENT[family], 1003), node_port, pod),
                # To a pod, of another protocol, to another port, and not translated.
                Entry("TCP", (CLIENT[family], 1004), (POD[family], 30080), pod),
                Entry("UDP", (CLIENT[family], 1005), service, pod),
                Entry("TCP", (CLIENT[family], 1006), (SERVICE[family], 81), pod),
                Entry("TCP", (CLIENT[family], 1007), service, service),
            ]
        )
        cluster_ip: FrontendKey = (SERVICE[family], "TCP", 80)
        keys: frozenset[FrontendKey] = frozenset({cluster_ip, (None, "TCP", 30080)})
        found = set(frontend_connections(family, keys))
    endpoint = f"[{POD[family]}]:8080" if family is Family.IPV6 else f"{POD[family]}:8080"
    assert found == {ConnectionCount(cluster_ip, endpoint, 1), ConnectionCount((None, "TCP", 30080), endpoint, 2)}
