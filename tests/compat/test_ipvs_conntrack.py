"""Connections over UDP that are made to be forgotten, by vintage (behaviour.md F.3)."""

from typing import Any

from knft_compat.cluster import Cluster
from knft_compat.ipvs import Vintage
from tests.compat.ipvs_page import NODE6, cluster, lines, served

PLACES: dict[str, Any] = {"external_ips": ("198.51.100.1",), "load_balancer_vips": ("203.0.113.9",), "node_port": 30053}
NEVER_FAILS = " || true"
ADDRESSES = ("10.96.0.1", "198.51.100.1", "203.0.113.9")


def forgotten(of: Cluster, vintage: Vintage = Vintage.V1_29) -> list[str]:
    """Return the commands."""
    text = lines(of, "conntrack", vintage=vintage)
    # conntrack fails where it deletes nothing, which kube-proxy takes for success.
    assert all(line.endswith(NEVER_FAILS) for line in text)
    return [line.removesuffix(NEVER_FAILS) for line in text]


def test_a_service_that_is_gone_is_forgotten_at_its_cluster_ip() -> None:
    of = cluster(before=[served(protocol="UDP", **PLACES)])
    for vintage in (Vintage.V1_29, Vintage.V1_26, Vintage.V1_23):
        assert forgotten(of, vintage) == ["conntrack -D --orig-dst 10.96.0.1 -p udp"]


def test_a_service_that_got_its_first_endpoint_is_forgotten_everywhere() -> None:
    before, now = served(protocol="UDP", **PLACES), served("10.244.1.1", protocol="UDP", **PLACES)
    by_address = [f"conntrack -D --orig-dst {address} -p udp" for address in ADDRESSES]
    by_port = ["conntrack -D -p udp --dport 30053"]
    assert forgotten(cluster(now, before=[before])) == [*by_address, *by_port]
    assert forgotten(cluster(now, before=[])) == [*by_address, *by_port]
    assert forgotten(cluster(now, before=[before]), Vintage.V1_26) == [*by_port, *by_address]


def test_an_endpoint_that_serves_no_more_is_forgotten_as_the_one_who_answered() -> None:
    before = served("10.244.1.1", "10.244.1.2", protocol="UDP", **PLACES)
    by_address = [f"conntrack -D --orig-dst {address} --dst-nat 10.244.1.2 -p udp" for address in ADDRESSES]
    for left in ((), ("N10.244.1.2",)):
        of = cluster(served("10.244.1.1", *left, protocol="UDP", **PLACES), before=[before])
        assert forgotten(of) == [*by_address, "conntrack -D -p udp --dport 30053 --dst-nat 10.244.1.2"]
        assert forgotten(of, Vintage.V1_26) == ["conntrack -D -p udp --dport 30053", *by_address]


def test_an_endpoint_that_never_served_has_nothing_to_forget() -> None:
    before = served("10.244.1.1", "N10.244.1.2", protocol="UDP")
    for left in ((), ("N10.244.1.2",)):
        of = cluster(served("10.244.1.1", *left, protocol="UDP"), before=[before])
        assert forgotten(of) == []


def test_a_terminating_endpoint_still_serves() -> None:
    of = cluster(served("T10.244.1.1", protocol="UDP"), before=[served("10.244.1.1", protocol="UDP")])
    assert forgotten(of) == []


def test_up_to_1_26_every_udp_node_port_is_forgotten_on_every_sync() -> None:
    ports = (served(protocol="UDP", node_port=30053), served(node_port=30080))
    for vintage in (Vintage.V1_26, Vintage.V1_23):
        assert forgotten(cluster(*ports), vintage) == ["conntrack -D -p udp --dport 30053"]
    assert forgotten(cluster(*ports)) == []


def test_ipv6_says_so_at_the_end() -> None:
    before = served("fd00:244::1", ip="fd00:96::1", protocol="UDP")
    assert forgotten(cluster(served(ip="fd00:96::1", protocol="UDP"), before=[before], node=NODE6)) == [
        "conntrack -D --orig-dst fd00:96::1 --dst-nat fd00:244::1 -p udp -f ipv6"
    ]


def test_tcp_and_sctp_are_never_forgotten() -> None:
    for protocol in ("TCP", "SCTP"):
        before = served("10.244.1.1", protocol=protocol, **PLACES)
        assert forgotten(cluster(before=[before])) == []


def test_in_a_first_sync_every_service_with_a_ready_endpoint_got_its_first_one() -> None:
    ports = (served("10.244.1.1", protocol="UDP", **PLACES), served("T10.244.1.2", name="shop/dns:", protocol="UDP"))
    by_address = [f"conntrack -D --orig-dst {address} -p udp" for address in ADDRESSES]
    by_port = ["conntrack -D -p udp --dport 30053"]
    assert forgotten(cluster(*ports)) == [*by_address, *by_port]
    assert forgotten(cluster(*ports), Vintage.V1_26) == [*by_port, *by_address]


def test_the_newest_looks_at_the_kernels_table() -> None:
    now = served("10.244.1.1", protocol="UDP", node_port=30053)
    for before in (None, ()):
        assert forgotten(cluster(now, before=before), Vintage.NEWEST) == []
