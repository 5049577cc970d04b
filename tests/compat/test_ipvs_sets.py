"""Tests of ipsets: names, types and entries (docs/behaviour/ipvs.md#ipsets)."""

from collections import Counter
from typing import Any

from knft.families import Family
from knft_compat.ipvs import Settings, sync
from knft_compat.ipvs.sets import SETS
from knft_compat.sync_input import Node
from tests.compat.ipvs_render import NODE6, all_entries, nonempty_sets, part_lines, service_port, sync_input
from tests.support.kube_objects import parametrize_cases

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


def test_seventeen_sets_in_kube_proxy_order() -> None:
    assert [f"{kind.name} {kind.type}" for kind in SETS.values()] == TYPES.split("\n")[1:-1]


def test_every_set_is_created_without_services() -> None:
    created = [line for line in part_lines(sync_input(), "ipset") if line.startswith("create ")]
    assert created[0] == "create KUBE-LOOP-BACK hash:ip,port,ip family inet hashsize 1024 maxelem 65536"
    assert created[9] == "create KUBE-NODE-PORT-TCP bitmap:port range 0-65535"
    assert len(created) == len(SETS)


def test_ipv6_set_names() -> None:
    created = [line.split()[1:] for line in part_lines(sync_input(node=NODE6), "ipset") if line.startswith("create ")]
    assert {line[0][:7] for line in created} == {"KUBE-6-"}
    assert max(len(line[0]) for line in created) == 31
    assert created[8][:4] == ["KUBE-6-LOAD-BALANCER-SOURCE-CID", "hash:ip,port,net", "family", "inet6"]
    assert created[9] == ["KUBE-6-NODE-PORT-TCP", "bitmap:port", "range", "0-65535"]


def test_set_comments_in_text_and_json() -> None:
    output = sync(sync_input(), Settings())
    assert "# Kubernetes service lb portal\ncreate KUBE-LOAD-BALANCER " in (output.part_text("ipset") or "")
    assert b'"comment":"Kubernetes service lb portal","entries":[]' in output.json()


LOCAL: dict[str, Any] = {"external_policy_local": True}
RANGES: dict[str, Any] = {"load_balancer_source_ranges": ("203.0.113.0/24", "198.51.100.7/32")}
VIP: dict[str, Any] = {"load_balancer_vips": ("203.0.113.9",)}


@parametrize_cases(
    {
        "local endpoints, whatever their conditions, for hairpin": (
            service_port("L10.244.1.1", "LN10.244.1.2", "10.244.2.1"),
            {"KUBE-LOOP-BACK": ("10.244.1.1,tcp:8080,10.244.1.1", "10.244.1.2,tcp:8080,10.244.1.2")},
        ),
        "external IPs": (
            service_port(external_ips=("198.51.100.1",)),
            {"KUBE-EXTERNAL-IP": ("198.51.100.1,tcp:80",), "KUBE-IPVS-IPS": ("10.96.0.1", "198.51.100.1")},
        ),
        "external IPs with policy Local": (
            service_port(external_ips=("198.51.100.1",), **LOCAL),
            {"KUBE-EXTERNAL-IP-LOCAL": ("198.51.100.1,tcp:80",), "KUBE-IPVS-IPS": ("10.96.0.1", "198.51.100.1")},
        ),
        "load balancer": (
            service_port(**VIP),
            {"KUBE-LOAD-BALANCER": ("203.0.113.9,tcp:80",), "KUBE-IPVS-IPS": ("10.96.0.1", "203.0.113.9")},
        ),
        "load balancer with policy Local, node outside the source ranges": (
            service_port(**VIP, **LOCAL, **RANGES),
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
        "load balancer, node inside the source range": (
            service_port(**VIP, load_balancer_source_ranges=("192.0.2.0/24",)),
            {
                "KUBE-LOAD-BALANCER": ("203.0.113.9,tcp:80",),
                "KUBE-LOAD-BALANCER-FW": ("203.0.113.9,tcp:80",),
                "KUBE-LOAD-BALANCER-SOURCE-CIDR": ("203.0.113.9,tcp:80,192.0.2.0/24",),
                "KUBE-LOAD-BALANCER-SOURCE-IP": ("203.0.113.9,tcp:80,203.0.113.9",),
                "KUBE-IPVS-IPS": ("10.96.0.1", "203.0.113.9"),
            },
        ),
        "NodePort": (service_port(node_port=30080), {"KUBE-NODE-PORT-TCP": ("30080",)}),
        "NodePort with policy Local and a health check": (
            service_port(node_port=30080, health_check_node_port=31000, **LOCAL),
            {
                "KUBE-NODE-PORT-TCP": ("30080",),
                "KUBE-NODE-PORT-LOCAL-TCP": ("30080",),
                "KUBE-HEALTH-CHECK-NODE-PORT": ("31000",),
            },
        ),
    }
)
def test_entries_of_a_tcp_service_port(case: Any) -> None:
    port, expected = case
    sets = nonempty_sets(sync_input(port))
    assert sets.pop("KUBE-CLUSTER-IP") == ("10.96.0.1,tcp:80",)
    assert {"KUBE-IPVS-IPS": ("10.96.0.1",), **expected} == sets


def test_node_port_entries_of_udp_and_sctp() -> None:
    sets = nonempty_sets(
        sync_input(service_port(node_port=1, protocol="UDP"), service_port(node_port=2, protocol="SCTP", **LOCAL))
    )
    assert sets["KUBE-NODE-PORT-UDP"] == ("1",)
    assert sets["KUBE-NODE-PORT-SCTP-HASH"] == ("192.0.2.10,sctp:2", "192.0.2.11,sctp:2")
    assert sets["KUBE-NODE-PORT-LOCAL-SCTP-HASH"] == ("192.0.2.10,sctp:2", "192.0.2.11,sctp:2")


def test_no_node_port_address_means_no_health_check_entry() -> None:
    node = Node(Family.IPV4, "192.0.2.10", ("192.0.2.10",), ("10.0.0.0/8",))
    sets = nonempty_sets(sync_input(service_port(node_port=30080, health_check_node_port=31000, **LOCAL), node=node))
    assert sets.keys() == {"KUBE-CLUSTER-IP", "KUBE-IPVS-IPS"}


def test_ipv6_entries_have_no_brackets() -> None:
    port = service_port("Lfd00:244::1", ip="fd00:96::1", node_port=2, protocol="SCTP")
    sets = nonempty_sets(sync_input(port, node=NODE6))
    assert sets["KUBE-LOOP-BACK"] == ("fd00:244::1,sctp:8080,fd00:244::1",)
    assert sets["KUBE-NODE-PORT-SCTP-HASH"] == ("2001:db8::10,sctp:2",)


def test_stale_entries_are_removed_before_entries_are_added() -> None:
    text = part_lines(
        sync_input(
            service_port(ip="10.96.0.2"), before=[service_port(), service_port(ip="10.96.0.2", name="shop/b:x")]
        ),
        "ipset",
    )
    lines = [line for line in text if "KUBE-CLUSTER-IP" in line and "create" not in line]
    assert lines == ["del KUBE-CLUSTER-IP 10.96.0.1,tcp:80", "add KUBE-CLUSTER-IP 10.96.0.2,tcp:80"]


def test_load_balancer_denies_a_node_outside_its_source_ranges() -> None:
    ports = (
        service_port(**VIP, load_balancer_source_ranges=("10.0.0.0/8",)),
        service_port(**VIP, load_balancer_source_ranges=("192.0.2.0/24",), name="shop/b:x"),
        service_port(**VIP, name="shop/c:x"),
    )
    assert [str(item.address) for item in all_entries(sync_input(*ports)).denied_frontends] == ["203.0.113.9"]


def test_entries_that_do_not_fit_are_left_out_with_a_warning() -> None:
    """Sets with room get the entries of all Services."""
    addresses = tuple(f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}" for n in range(65535))
    ports = (
        service_port(external_ips=addresses),
        service_port(external_ips=("198.51.100.1", "198.51.100.2"), name="shop/b:x"),
        service_port(external_ips=("198.51.100.3",), name="shop/c:x"),
    )
    output = sync(sync_input(*ports), Settings())
    message = (
        "ipset {} is full: kube-proxy creates it for 65536 entries; {} entries are left out, "
        "of Service shop/b and 1 more"
    )
    assert output.warnings == (message.format("KUBE-EXTERNAL-IP", 2), message.format("KUBE-IPVS-IPS", 3))
    lines = (output.part_text("ipset") or "").splitlines()
    added = Counter(line.split()[1] for line in lines if line.startswith("add "))
    assert added == {"KUBE-CLUSTER-IP": 1, "KUBE-EXTERNAL-IP": 65536, "KUBE-IPVS-IPS": 65536}
