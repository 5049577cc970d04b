"""Virtual and real servers: what a sync makes, changes, lets go and deletes (behaviour.md E.4, E.6)."""

from typing import Any

import pytest

from knft.model.names import Family, Protocol
from knft_compat.cluster import Node
from knft_compat.ipvs import Settings, Vintage, sync
from knft_compat.ipvs.existing import ExistingReal, ExistingServer
from tests.compat.ipvs_page import NODE, NODE6, bound, cluster, lines, served
from tests.unit.objects import table

NEWER, OLDER = (Vintage.NEWEST, Vintage.V1_29), (Vintage.V1_26, Vintage.V1_23)


def there(*reals: ExistingReal, address: str = "10.96.0.1", protocol: Protocol = "TCP", **fields: Any) -> Any:
    """Return the virtual server of the cluster IP as it is there already."""
    return (ExistingServer(address, 80, protocol, **{"scheduler": "rr", "reals": reals, **fields}),)


def real(last: int, weight: int = 1, connections: int = 0) -> ExistingReal:
    """Return a real server that is there already."""
    return ExistingReal(f"10.244.1.{last}", 8080, weight, connections)


@table(
    {
        "TCP": (served("10.244.1.1"), ["-A -t 10.96.0.1:80 -s rr", "-a -t 10.96.0.1:80 -r 10.244.1.1:8080 -m -w 1"]),
        "UDP": (served(protocol="UDP"), ["-A -u 10.96.0.1:80 -s rr"]),
        "SCTP": (served(protocol="SCTP"), ["-A --sctp-service 10.96.0.1:80 -s rr"]),
        "affinity": (served(affinity_seconds=10800), ["-A -t 10.96.0.1:80 -s rr -p 10800"]),
        "endpoints in the order of their text": (
            served("10.244.1.9", "10.244.1.10"),
            [
                "-A -t 10.96.0.1:80 -s rr",
                "-a -t 10.96.0.1:80 -r 10.244.1.10:8080 -m -w 1",
                "-a -t 10.96.0.1:80 -r 10.244.1.9:8080 -m -w 1",
            ],
        ),
        "a NodePort at each address of the node": (
            served(node_port=30080),
            ["-A -t 10.96.0.1:80 -s rr", "-A -t 192.0.2.10:30080 -s rr", "-A -t 192.0.2.11:30080 -s rr"],
        ),
        "external IPs before load balancers": (
            served(external_ips=("198.51.100.1",), load_balancer_vips=("203.0.113.9",)),
            ["-A -t 10.96.0.1:80 -s rr", "-A -t 198.51.100.1:80 -s rr", "-A -t 203.0.113.9:80 -s rr"],
        ),
    }
)
def test_a_service_port_becomes(row: Any) -> None:
    port, expected = row
    assert lines(cluster(port), "ipvsadm") == expected


def test_ipv6_addresses_stand_in_brackets() -> None:
    assert lines(cluster(served("fd00:244::1", ip="fd00:96::1"), node=NODE6), "ipvsadm") == [
        "-A -t [fd00:96::1]:80 -s rr",
        "-a -t [fd00:96::1]:80 -r [fd00:244::1]:8080 -m -w 1",
    ]


def test_node_ports_over_ipv6() -> None:
    text = lines(cluster(served(ip="fd00:96::1", node_port=30080), node=NODE6), "ipvsadm")
    assert text[1:] == ["-A -t [2001:db8::10]:30080 -s rr"]


def test_scheduler_mh_hashes_ports_too_and_the_old_vintages_knew_nothing_of_it() -> None:
    port = cluster(served(affinity_seconds=60))
    for vintage in NEWER:
        assert lines(port, "ipvsadm", scheduler="mh", vintage=vintage) == ["-A -t 10.96.0.1:80 -s mh -p 60 -b mh-port"]
    for vintage in OLDER:
        assert lines(port, "ipvsadm", scheduler="mh", vintage=vintage) == ["-A -t 10.96.0.1:80 -s mh -p 60"]


def test_node_ports_follow_the_networks_that_accept_them_but_never_loopback() -> None:
    cidrs = ("192.0.2.11/32", "127.0.0.0/8")
    node = Node(Family.IPV4, "192.0.2.10", ("127.0.0.1", "192.0.2.10", "192.0.2.11"), cidrs)
    assert lines(cluster(served(node_port=30080), node=node), "ipvsadm")[1:] == ["-A -t 192.0.2.11:30080 -s rr"]


def test_node_ports_on_link_local_addresses_are_those_of_ipv4_and_of_ipv6_where_a_network_says_so() -> None:
    """As with node-local-dns' address; IPv6 makes its own without being asked."""
    ipv4, ipv6 = ("169.254.20.10", "192.0.2.10"), ("2001:db8::10", "fe80::1")
    assert _node_ports(Node(Family.IPV4, None, ipv4)) == ["169.254.20.10:30080", "192.0.2.10:30080"]
    assert _node_ports(Node(Family.IPV6, None, ipv6)) == ["[2001:db8::10]:30080"]
    assert _node_ports(Node(Family.IPV6, None, ipv6, ("fe80::/64",))) == ["[fe80::1]:30080"]


def _node_ports(node: Node) -> list[str]:
    ip = "10.96.0.1" if node.family is Family.IPV4 else "fd00:96::1"
    text = lines(cluster(served(ip=ip, node_port=30080), node=node), "ipvsadm")
    return [line.split()[2] for line in text[1:]]


@table(
    {
        "policy Cluster: all": ({}, ["1.1", "2.1"], ["1.1", "2.1"]),
        "external policy Local: those here, the cluster IP all": (
            {"external_policy_local": True},
            ["1.1", "2.1"],
            ["1.1"],
        ),
        "internal policy Local: those here at the cluster IP": (
            {"internal_policy_local": True},
            ["1.1"],
            ["1.1", "2.1"],
        ),
    }
)
def test_policies_choose_endpoints(row: Any) -> None:
    fields, internal, external = row
    text = lines(cluster(served("L10.244.1.1", "10.244.2.1", external_ips=("198.51.100.1",), **fields)), "ipvsadm")
    assert [f"10.244.{end}:8080" for end in internal] == _reals(text, "10.96.0.1:80")
    assert [f"10.244.{end}:8080" for end in external] == _reals(text, "198.51.100.1:80")


def _reals(text: list[str], place: str) -> list[str]:
    return [line.split()[4] for line in text if line.startswith("-a ") and line.split()[2] == place]


def test_policy_local_without_endpoints_here_falls_back_to_all_so_that_pods_are_served() -> None:
    text = lines(cluster(served("10.244.2.1", external_ips=("198.51.100.1",), external_policy_local=True)), "ipvsadm")
    assert _reals(text, "198.51.100.1:80") == ["10.244.2.1:8080"]


def test_terminating_endpoints_serve_where_no_other_does() -> None:
    assert _reals(lines(cluster(served("T10.244.2.1", "N10.244.2.2")), "ipvsadm"), "10.96.0.1:80") == [
        "10.244.2.1:8080"
    ]


@table(
    {
        "the same: nothing": ({}, []),
        "another scheduler": ({"scheduler": "lc"}, ["-E -t 10.96.0.1:80 -s rr"]),
        "affinity that is not wanted": ({"persistent": 60}, ["-E -t 10.96.0.1:80 -s rr"]),
        "a flag that is not wanted": ({"hashes_ports": True}, ["-E -t 10.96.0.1:80 -s rr"]),
        "a flag that kube-proxy has no word for": ({"has_other_flags": True}, ["-E -t 10.96.0.1:80 -s rr"]),
    }
)
def test_a_virtual_server_that_is_there_is_changed_where_it_differs(row: Any) -> None:
    fields, expected = row
    assert lines(cluster(served()), "ipvsadm", servers=there(**fields)) == expected


@pytest.mark.parametrize(
    ("protocol", "present", "expected"),
    [
        ("TCP", real(9), "-d -t 10.96.0.1:80 -r 10.244.1.9:8080"),
        ("TCP", real(9, 1, 3), "-e -t 10.96.0.1:80 -r 10.244.1.9:8080 -m -w 0"),
        ("UDP", real(9, 1, 3), "-d -u 10.96.0.1:80 -r 10.244.1.9:8080"),
        ("SCTP", real(9, 1, 3), "-d --sctp-service 10.96.0.1:80 -r 10.244.1.9:8080"),
    ],
)
def test_a_real_server_that_is_not_wanted_stays_with_weight_0_while_tcp_has_connections(
    protocol: Protocol, present: ExistingReal, expected: str
) -> None:
    for before in (None, ()):
        of = cluster(served(protocol=protocol), before=before)
        assert lines(of, "ipvsadm", servers=there(present, protocol=protocol)) == [expected]


def test_what_is_being_let_go_is_left_to_it() -> None:
    assert lines(cluster(served(), before=()), "ipvsadm", servers=there(real(9, 0, 3))) == []


def test_the_first_sync_lets_go_again_what_a_kube_proxy_before_was_letting_go() -> None:
    """It remembers nothing: without connections the server goes at once, with some it gets weight 0 again."""
    place = "-t 10.96.0.1:80 -r 10.244.1.9:8080"
    assert lines(cluster(served()), "ipvsadm", servers=there(real(9, 0))) == [f"-d {place}"]
    assert lines(cluster(served()), "ipvsadm", servers=there(real(9, 0, 3))) == [f"-e {place} -m -w 0"]


def test_an_endpoint_that_comes_back_while_it_is_let_go_is_deleted_and_added() -> None:
    assert lines(cluster(served("10.244.1.1"), before=()), "ipvsadm", servers=there(real(1, 0, 3))) == [
        "-d -t 10.96.0.1:80 -r 10.244.1.1:8080",
        "-a -t 10.96.0.1:80 -r 10.244.1.1:8080 -m -w 1",
    ]


def test_the_first_sync_gives_all_wanted_servers_their_weight_back_where_one_has_another() -> None:
    port = served("10.244.1.1", "10.244.1.2")
    present = there(real(1, 0), real(2))
    assert lines(cluster(port), "ipvsadm", servers=present) == [
        "-e -t 10.96.0.1:80 -r 10.244.1.1:8080 -m -w 1",
        "-e -t 10.96.0.1:80 -r 10.244.1.2:8080 -m -w 1",
    ]
    assert lines(cluster(port), "ipvsadm", servers=there(real(1), real(2))) == []


def test_of_two_claims_of_one_place_the_last_one_stands_and_is_written_once() -> None:
    first = served("10.244.1.1", name="shop/a:x", external_ips=("198.51.100.1",), affinity_seconds=60)
    second = served("10.244.1.2", name="shop/b:x", ip="10.96.0.2", external_ips=("198.51.100.1",))
    text = [line for line in lines(cluster(first, second), "ipvsadm") if "198.51.100.1" in line]
    assert text == ["-A -t 198.51.100.1:80 -s rr", "-a -t 198.51.100.1:80 -r 10.244.1.2:8080 -m -w 1"]


def test_old_servers_of_the_family_go_but_not_those_in_excluded_networks() -> None:
    servers = [there(address=address)[0] for address in ("10.96.0.1", "10.96.0.2", "10.9.0.1", "fd00:96::1")]
    of = cluster(served())
    assert lines(of, "ipvsadm-stale", servers=servers) == ["-D -t 10.96.0.2:80", "-D -t 10.9.0.1:80"]
    assert lines(of, "ipvsadm-stale", servers=servers, excluded=("10.9.0.0/16", "fd00::/8")) == ["-D -t 10.96.0.2:80"]
    assert lines(cluster(node=NODE6), "ipvsadm-stale", servers=servers) == ["-D -t [fd00:96::1]:80"]


def test_an_address_is_bound_once_however_many_ports_it_has() -> None:
    of = cluster(served(name="shop/web:a"), served(name="shop/web:b", port=81))
    assert lines(of, "addresses") == ["address add 10.96.0.1/32 dev kube-ipvs0"]
    assert lines(of, "addresses", bound=("10.96.0.1",)) == []


def test_external_addresses_that_another_interface_has_are_not_bound_but_by_the_old_vintages() -> None:
    of = cluster(served(external_ips=("192.0.2.10", "198.51.100.1"), load_balancer_vips=("192.0.2.11",)))
    for vintage in NEWER:
        assert bound(of, vintage) == ("10.96.0.1", "198.51.100.1")
    for vintage in OLDER:
        assert bound(of, vintage) == ("10.96.0.1", "192.0.2.10", "198.51.100.1", "192.0.2.11")


@pytest.mark.parametrize("vintage", Vintage)
def test_the_old_vintages_serve_no_node_port_at_an_address_that_their_device_has_as_well(vintage: Vintage) -> None:
    """Document 002, NodeIPs; where networks choose the addresses, they look at no device."""
    of = cluster(served(node_port=30080))
    text = lines(of, "ipvsadm", vintage=vintage, bound=("192.0.2.10",))
    assert ("-A -t 192.0.2.10:30080 -s rr" in text) == (vintage in NEWER)
    assert "-A -t 192.0.2.11:30080 -s rr" in text
    chosen = Node(Family.IPV4, "192.0.2.10", NODE.local_addresses, ("192.0.2.0/24",))
    text = lines(cluster(served(node_port=30080), node=chosen), "ipvsadm", vintage=vintage, bound=("192.0.2.10",))
    assert "-A -t 192.0.2.10:30080 -s rr" in text


def test_addresses_of_node_ports_are_never_bound() -> None:
    assert bound(cluster(served(node_port=30080))) == ("10.96.0.1",)


def test_addresses_that_are_bound_and_not_wanted_go() -> None:
    have = ("10.96.0.1", "10.96.0.9", "169.254.20.10", "fd00:96::9", "fe8::1", "fe80::1", "127.0.0.1", "::1")
    assert lines(cluster(served()), "addresses-stale", bound=have) == [
        "address del 10.96.0.9/32 dev kube-ipvs0",
        "address del 169.254.20.10/32 dev kube-ipvs0",
    ]
    assert lines(cluster(node=NODE6), "addresses-stale", bound=have) == [
        "address del fd00:96::9/128 dev kube-ipvs0",
        "address del fe8::1/128 dev kube-ipvs0",
    ]


def test_an_external_ip_that_ipv6_made_on_another_interface_is_bound() -> None:
    node = Node(Family.IPV6, None, ("2001:db8::10", "fe80::1"))
    assert bound(cluster(served(ip="fd00:96::1", external_ips=("fe80::1", "2001:db8::10")), node=node)) == (
        "fd00:96::1",
        "fe80::1",
    )


def test_the_old_vintages_only_take_away_the_addresses_of_servers_that_they_delete_and_those_after_them() -> None:
    have: dict[str, Any] = {"bound": ("10.96.0.8", "10.96.0.9"), "servers": there(address="10.96.0.9")}
    for vintage, addresses in [(Vintage.V1_26, ["10.96.0.9"]), (Vintage.NEWEST, ["10.96.0.8", "10.96.0.9"])]:
        text = lines(cluster(), "addresses-stale", vintage=vintage, **have)
        assert text == [f"address del {address}/32 dev kube-ipvs0" for address in addresses]
    tail = ("addresses-stale", "ipvsadm-stale")
    assert sync(cluster(), Settings()).names[-3:-1] == tail
    assert sync(cluster(), Settings(vintage=Vintage.V1_23)).names[-3:-1] == tail[::-1]
