"""ipsets: their names and types, and what is in them (behaviour.md E.3, E.6)."""

from typing import Any

import pytest

from knft.errors import UsageError
from knft.model.names import Family
from knft_compat.cluster import Node
from knft_compat.ipvs import Settings, Vintage, sync
from knft_compat.ipvs.entries import entries
from knft_compat.ipvs.sets import SETS
from knft_compat.ipvs.vintages import FEATURES
from tests.compat.ipvs_page import NODE, NODE6, all_entries, cluster, lines, served, sets
from tests.unit.objects import table

TYPES = """
KUBE-LOOP-BACK hash:ip,port,ip
KUBE-CLUSTER-IP hash:ip,port
KUBE-EXTERNAL-IP hash:ip,port
KUBE-EXTERNAL-IP-LOCAL hash:ip,port
KUBE-LOAD-BALANCER hash:ip,port
KUBE-LOAD-BALANCER-FW hash:ip,port
KUBE-LOAD-BALANCER-LOCAL hash:ip,port
KUBE-LOAD-BALANCER-SOURCE-IP hash:ip,port,ip
KUBE-LOAD-BALANCER-SOURCE-CIDR hash:ip,port,net
KUBE-NODE-PORT-TCP bitmap:port
KUBE-NODE-PORT-LOCAL-TCP bitmap:port
KUBE-NODE-PORT-UDP bitmap:port
KUBE-NODE-PORT-LOCAL-UDP bitmap:port
KUBE-NODE-PORT-SCTP-HASH hash:ip,port
KUBE-NODE-PORT-LOCAL-SCTP-HASH hash:ip,port
KUBE-HEALTH-CHECK-NODE-PORT bitmap:port
KUBE-IPVS-IPS hash:ip
"""


def test_there_are_seventeen_sets_in_kube_proxys_order() -> None:
    assert [f"{kind.name} {kind.type}" for kind in SETS.values()] == TYPES.split("\n")[1:-1]


def test_every_set_is_made_where_there_is_no_service() -> None:
    created = [line for line in lines(cluster(), "ipset") if line.startswith("create ")]
    assert created[0] == "create KUBE-LOOP-BACK hash:ip,port,ip family inet hashsize 1024 maxelem 65536"
    assert created[9] == "create KUBE-NODE-PORT-TCP bitmap:port range 0-65535"
    assert len(created) == len(SETS)


def test_the_ipv6_sets_have_names_of_their_own_and_the_longest_is_cut() -> None:
    created = [line.split()[1:] for line in lines(cluster(node=NODE6), "ipset") if line.startswith("create ")]
    assert {words[0][:7] for words in created} == {"KUBE-6-"}
    assert max(len(words[0]) for words in created) == 31
    assert created[8][:4] == ["KUBE-6-LOAD-BALANCER-SOURCE-CID", "hash:ip,port,net", "family", "inet6"]
    assert created[9] == ["KUBE-6-NODE-PORT-TCP", "bitmap:port", "range", "0-65535"]


def test_the_comment_of_each_set_stands_in_front_of_it_and_in_json() -> None:
    page = sync(cluster(), Settings())
    assert "# Kubernetes service lb portal\ncreate KUBE-LOAD-BALANCER " in (page.part("ipset") or "")
    assert b'"comment":"Kubernetes service lb portal","entries":[]' in page.json()


LOCAL: dict[str, Any] = {"external_policy_local": True}
RANGES: dict[str, Any] = {"load_balancer_source_ranges": ("203.0.113.0/24", "198.51.100.7/32")}
VIP: dict[str, Any] = {"load_balancer_vips": ("203.0.113.9",)}


@table(
    {
        "endpoints on this node in any condition, for hairpin": (
            served("L10.244.1.1", "LN10.244.1.2", "10.244.2.1"),
            {"KUBE-LOOP-BACK": ("10.244.1.1,tcp:8080,10.244.1.1", "10.244.1.2,tcp:8080,10.244.1.2")},
        ),
        "external IPs": (
            served(external_ips=("198.51.100.1",)),
            {"KUBE-EXTERNAL-IP": ("198.51.100.1,tcp:80",), "KUBE-IPVS-IPS": ("10.96.0.1", "198.51.100.1")},
        ),
        "external IPs with policy Local": (
            served(external_ips=("198.51.100.1",), **LOCAL),
            {"KUBE-EXTERNAL-IP-LOCAL": ("198.51.100.1,tcp:80",), "KUBE-IPVS-IPS": ("10.96.0.1", "198.51.100.1")},
        ),
        "a load balancer": (
            served(**VIP),
            {"KUBE-LOAD-BALANCER": ("203.0.113.9,tcp:80",), "KUBE-IPVS-IPS": ("10.96.0.1", "203.0.113.9")},
        ),
        "a load balancer with policy Local and ranges without the node": (
            served(**VIP, **LOCAL, **RANGES),
            {
                "KUBE-LOAD-BALANCER": ("203.0.113.9,tcp:80",),
                "KUBE-LOAD-BALANCER-LOCAL": ("203.0.113.9,tcp:80",),
                "KUBE-LOAD-BALANCER-FW": ("203.0.113.9,tcp:80",),
                "KUBE-LOAD-BALANCER-SOURCE-CIDR": (
                    "203.0.113.9,tcp:80,203.0.113.0/24",
                    "203.0.113.9,tcp:80,198.51.100.7/32",
                ),
                "KUBE-IPVS-IPS": ("10.96.0.1", "203.0.113.9"),
            },
        ),
        "a range with the node": (
            served(**VIP, load_balancer_source_ranges=("192.0.2.0/24",)),
            {
                "KUBE-LOAD-BALANCER": ("203.0.113.9,tcp:80",),
                "KUBE-LOAD-BALANCER-FW": ("203.0.113.9,tcp:80",),
                "KUBE-LOAD-BALANCER-SOURCE-CIDR": ("203.0.113.9,tcp:80,192.0.2.0/24",),
                "KUBE-LOAD-BALANCER-SOURCE-IP": ("203.0.113.9,tcp:80,203.0.113.9",),
                "KUBE-IPVS-IPS": ("10.96.0.1", "203.0.113.9"),
            },
        ),
        "a NodePort is a number": (served(node_port=30080), {"KUBE-NODE-PORT-TCP": ("30080",)}),
        "a NodePort with policy Local and a health check": (
            served(node_port=30080, health_check_node_port=31000, **LOCAL),
            {
                "KUBE-NODE-PORT-TCP": ("30080",),
                "KUBE-NODE-PORT-LOCAL-TCP": ("30080",),
                "KUBE-HEALTH-CHECK-NODE-PORT": ("31000",),
            },
        ),
    }
)
def test_a_service_port_over_tcp_fills(row: Any) -> None:
    port, expected = row
    found = sets(cluster(port))
    assert found.pop("KUBE-CLUSTER-IP") == ("10.96.0.1,tcp:80",)
    assert {"KUBE-IPVS-IPS": ("10.96.0.1",), **expected} == found


def test_node_ports_over_udp_are_numbers_and_over_sctp_are_hashed_with_each_address_of_the_node() -> None:
    found = sets(cluster(served(node_port=1, protocol="UDP"), served(node_port=2, protocol="SCTP", **LOCAL)))
    assert found["KUBE-NODE-PORT-UDP"] == ("1",)
    assert found["KUBE-NODE-PORT-SCTP-HASH"] == ("192.0.2.10,sctp:2", "192.0.2.11,sctp:2")
    assert found["KUBE-NODE-PORT-LOCAL-SCTP-HASH"] == ("192.0.2.10,sctp:2", "192.0.2.11,sctp:2")


def test_where_no_address_accepts_node_ports_the_health_check_is_left_out_too() -> None:
    node = Node(Family.IPV4, "192.0.2.10", ("192.0.2.10",), ("10.0.0.0/8",))
    found = sets(cluster(served(node_port=30080, health_check_node_port=31000, **LOCAL), node=node))
    assert found.keys() == {"KUBE-CLUSTER-IP", "KUBE-IPVS-IPS"}


def test_ipv6_entries_have_no_brackets() -> None:
    port = served("Lfd00:244::1", ip="fd00:96::1", node_port=2, protocol="SCTP")
    found = sets(cluster(port, node=NODE6))
    assert found["KUBE-LOOP-BACK"] == ("fd00:244::1,sctp:8080,fd00:244::1",)
    assert found["KUBE-NODE-PORT-SCTP-HASH"] == ("2001:db8::10,sctp:2",)


def test_what_the_sync_before_had_put_in_is_taken_out_before_the_rest_is_put_in() -> None:
    text = lines(cluster(served(ip="10.96.0.2"), before=[served(), served(ip="10.96.0.2", name="shop/b:x")]), "ipset")
    about = [line for line in text if "KUBE-CLUSTER-IP" in line and "create" not in line]
    assert about == ["del KUBE-CLUSTER-IP 10.96.0.1,tcp:80", "add KUBE-CLUSTER-IP 10.96.0.2,tcp:80"]


def test_a_load_balancer_is_fenced_off_from_a_node_that_is_in_none_of_its_ranges() -> None:
    ports = (
        served(**VIP, load_balancer_source_ranges=("10.0.0.0/8",)),
        served(**VIP, load_balancer_source_ranges=("192.0.2.0/24",), name="shop/b:x"),
        served(**VIP, name="shop/c:x"),
    )
    assert [str(item.address) for item in all_entries(cluster(*ports)).fenced] == ["203.0.113.9"]


@pytest.mark.parametrize(("cidr", "node"), [("0.0.0.0/0", NODE), ("::/0", NODE6)])
def test_a_range_of_everything_cannot_be_expressed(cidr: str, node: Node) -> None:
    port = served(load_balancer_vips=("203.0.113.9",), load_balancer_source_ranges=(cidr,))
    with pytest.raises(UsageError, match=rf"^Service shop/web: the IPVS mode cannot express the source range {cidr}: "):
        entries(cluster(port, node=node), FEATURES[Vintage.NEWEST])


def test_more_entries_than_a_set_holds_cannot_be_expressed() -> None:
    ports = (served(name=f"shop/s{n}:x", ip=f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}") for n in range(65537))
    with pytest.raises(UsageError, match=r"65537 entries belong into ipset KUBE-CLUSTER-IP"):
        entries(cluster(*ports), FEATURES[Vintage.NEWEST])
