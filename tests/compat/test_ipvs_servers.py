"""Tests of virtual and real servers: create, edit, terminate, delete (docs/behaviour/ipvs.md#service-ports)."""

from typing import Any

import pytest

from knft.families import Family
from knft.protocols import Protocol
from knft_compat.ipvs import RuleVersion, Settings, sync
from knft_compat.ipvs.existing import ExistingRealServer, ExistingServer
from knft_compat.sync_input import Node
from tests.compat.ipvs_render import NODE, NODE6, addresses_to_bind, part_lines, service_port, sync_input
from tests.support.kube_objects import parametrize_cases

NEWER, OLDER = (RuleVersion.NEWEST, RuleVersion.DOCUMENT_004), (RuleVersion.DOCUMENT_002, RuleVersion.DOCUMENT_003)


def existing_server(
    *reals: ExistingRealServer, address: str = "10.96.0.1", protocol: Protocol = "TCP", **fields: Any
) -> Any:
    """Return the existing virtual server of the cluster IP."""
    return (ExistingServer(address, 80, protocol, **{"scheduler": "rr", "real_servers": reals, **fields}),)


def real_server(last_octet: int, weight: int = 1, connections: int = 0) -> ExistingRealServer:
    """Return an existing real server."""
    return ExistingRealServer(f"10.244.1.{last_octet}", 8080, weight, connections)


@parametrize_cases(
    {
        "TCP": (
            service_port("10.244.1.1"),
            ["-A -t 10.96.0.1:80 -s rr", "-a -t 10.96.0.1:80 -r 10.244.1.1:8080 -m -w 1"],
        ),
        "UDP": (service_port(protocol="UDP"), ["-A -u 10.96.0.1:80 -s rr"]),
        "SCTP": (service_port(protocol="SCTP"), ["-A --sctp-service 10.96.0.1:80 -s rr"]),
        "affinity": (service_port(affinity_seconds=10800), ["-A -t 10.96.0.1:80 -s rr -p 10800"]),
        "endpoints in text order": (
            service_port("10.244.1.9", "10.244.1.10"),
            [
                "-A -t 10.96.0.1:80 -s rr",
                "-a -t 10.96.0.1:80 -r 10.244.1.10:8080 -m -w 1",
                "-a -t 10.96.0.1:80 -r 10.244.1.9:8080 -m -w 1",
            ],
        ),
        "NodePort at each node address": (
            service_port(node_port=30080),
            ["-A -t 10.96.0.1:80 -s rr", "-A -t 192.0.2.10:30080 -s rr", "-A -t 192.0.2.11:30080 -s rr"],
        ),
        "external IPs before load balancers": (
            service_port(external_ips=("198.51.100.1",), load_balancer_vips=("203.0.113.9",)),
            ["-A -t 10.96.0.1:80 -s rr", "-A -t 198.51.100.1:80 -s rr", "-A -t 203.0.113.9:80 -s rr"],
        ),
    }
)
def test_service_port_has_a_virtual_server_for_each_address(case: Any) -> None:
    port, expected = case
    assert part_lines(sync_input(port), "ipvsadm") == expected


def test_ipv6_addresses_are_in_brackets() -> None:
    assert part_lines(sync_input(service_port("fd00:244::1", ip="fd00:96::1"), node=NODE6), "ipvsadm") == [
        "-A -t [fd00:96::1]:80 -s rr",
        "-a -t [fd00:96::1]:80 -r [fd00:244::1]:8080 -m -w 1",
    ]


def test_ipv6_node_ports_have_virtual_servers() -> None:
    text = part_lines(sync_input(service_port(ip="fd00:96::1", node_port=30080), node=NODE6), "ipvsadm")
    assert text[1:] == ["-A -t [2001:db8::10]:30080 -s rr"]


def test_scheduler_mh_hashes_ports_in_newer_versions() -> None:
    port = sync_input(service_port(affinity_seconds=60))
    for rule_version in NEWER:
        assert part_lines(port, "ipvsadm", scheduler="mh", rule_version=rule_version) == [
            "-A -t 10.96.0.1:80 -s mh -p 60 -b mh-port"
        ]
    for rule_version in OLDER:
        assert part_lines(port, "ipvsadm", scheduler="mh", rule_version=rule_version) == [
            "-A -t 10.96.0.1:80 -s mh -p 60"
        ]


def test_node_port_networks_select_addresses_except_loopback() -> None:
    cidrs = ("192.0.2.11/32", "127.0.0.0/8")
    node = Node(Family.IPV4, "192.0.2.10", ("127.0.0.1", "192.0.2.10", "192.0.2.11"), cidrs)
    assert part_lines(sync_input(service_port(node_port=30080), node=node), "ipvsadm")[1:] == [
        "-A -t 192.0.2.11:30080 -s rr"
    ]


def test_node_ports_are_served_on_link_local_addresses() -> None:
    """IPv4 link-local addresses serve NodePorts (as for node-local-dns); IPv6 ones only with a matching network."""
    ipv4, ipv6 = ("169.254.20.10", "192.0.2.10"), ("2001:db8::10", "fe80::1")
    assert _node_ports(Node(Family.IPV4, None, ipv4)) == ["169.254.20.10:30080", "192.0.2.10:30080"]
    assert _node_ports(Node(Family.IPV6, None, ipv6)) == ["[2001:db8::10]:30080"]
    assert _node_ports(Node(Family.IPV6, None, ipv6, ("fe80::/64",))) == ["[fe80::1]:30080"]


def _node_ports(node: Node) -> list[str]:
    ip = "10.96.0.1" if node.family is Family.IPV4 else "fd00:96::1"
    text = part_lines(sync_input(service_port(ip=ip, node_port=30080), node=node), "ipvsadm")
    return [line.split()[2] for line in text[1:]]


@parametrize_cases(
    {
        "policy Cluster: all endpoints": ({}, ["1.1", "2.1"], ["1.1", "2.1"]),
        "external policy Local: local endpoints at external addresses": (
            {"external_policy_local": True},
            ["1.1", "2.1"],
            ["1.1"],
        ),
        "internal policy Local: local endpoints at the cluster IP": (
            {"internal_policy_local": True},
            ["1.1"],
            ["1.1", "2.1"],
        ),
    }
)
def test_traffic_policies_select_endpoints(case: Any) -> None:
    fields, internal, external = case
    text = part_lines(
        sync_input(service_port("L10.244.1.1", "10.244.2.1", external_ips=("198.51.100.1",), **fields)), "ipvsadm"
    )
    assert [f"10.244.{suffix}:8080" for suffix in internal] == _reals(text, "10.96.0.1:80")
    assert [f"10.244.{suffix}:8080" for suffix in external] == _reals(text, "198.51.100.1:80")


def _reals(text: list[str], server: str) -> list[str]:
    return [line.split()[4] for line in text if line.startswith("-a ") and line.split()[2] == server]


def test_policy_local_without_local_endpoints_uses_all_endpoints() -> None:
    text = part_lines(
        sync_input(service_port("10.244.2.1", external_ips=("198.51.100.1",), external_policy_local=True)), "ipvsadm"
    )
    assert _reals(text, "198.51.100.1:80") == ["10.244.2.1:8080"]


def test_terminating_endpoints_serve_if_there_are_no_others() -> None:
    assert _reals(part_lines(sync_input(service_port("T10.244.2.1", "N10.244.2.2")), "ipvsadm"), "10.96.0.1:80") == [
        "10.244.2.1:8080"
    ]


@parametrize_cases(
    {
        "no difference": ({}, []),
        "another scheduler": ({"scheduler": "lc"}, ["-E -t 10.96.0.1:80 -s rr"]),
        "unexpected affinity": ({"persistent": 60}, ["-E -t 10.96.0.1:80 -s rr"]),
        "unexpected flag": ({"hashes_ports": True}, ["-E -t 10.96.0.1:80 -s rr"]),
        "flag that kube-proxy does not use": ({"has_other_flags": True}, ["-E -t 10.96.0.1:80 -s rr"]),
    }
)
def test_existing_virtual_server_is_edited_if_it_differs(case: Any) -> None:
    fields, expected = case
    assert part_lines(sync_input(service_port()), "ipvsadm", existing_servers=existing_server(**fields)) == expected


@pytest.mark.parametrize(
    ("protocol", "existing", "expected"),
    [
        ("TCP", real_server(9), "-d -t 10.96.0.1:80 -r 10.244.1.9:8080"),
        ("TCP", real_server(9, 1, 3), "-e -t 10.96.0.1:80 -r 10.244.1.9:8080 -m -w 0"),
        ("UDP", real_server(9, 1, 3), "-d -u 10.96.0.1:80 -r 10.244.1.9:8080"),
        ("SCTP", real_server(9, 1, 3), "-d --sctp-service 10.96.0.1:80 -r 10.244.1.9:8080"),
    ],
)
def test_stale_tcp_real_server_with_connections_gets_weight_0(
    protocol: Protocol, existing: ExistingRealServer, expected: str
) -> None:
    for before in (None, ()):
        cluster = sync_input(service_port(protocol=protocol), before=before)
        assert part_lines(cluster, "ipvsadm", existing_servers=existing_server(existing, protocol=protocol)) == [
            expected
        ]


def test_terminating_real_server_is_kept() -> None:
    assert (
        part_lines(
            sync_input(service_port(), before=()), "ipvsadm", existing_servers=existing_server(real_server(9, 0, 3))
        )
        == []
    )


@pytest.mark.parametrize(
    ("connections", "is_first", "deleted"),
    [(0, False, ["-d -t 10.96.0.1:80 -r 10.244.1.2:8080"]), (3, False, []), (0, True, [])],
)
def test_terminated_real_server_is_deleted_after_its_last_connection(
    connections: int, *, is_first: bool, deleted: list[str]
) -> None:
    """kube-proxy does so once a minute, outside of syncs; the first sync deletes such servers itself."""
    port = service_port("10.244.1.1")
    servers = existing_server(real_server(1), real_server(2, weight=0, connections=connections))
    cluster = sync_input(port, before=None if is_first else [port])
    assert part_lines(cluster, "ipvsadm-terminated", existing_servers=servers) == deleted


def test_first_sync_terminates_weight_0_servers_again() -> None:
    """A new process has no state: it deletes servers without connections, and gives weight 0 to others."""
    server = "-t 10.96.0.1:80 -r 10.244.1.9:8080"
    assert part_lines(sync_input(service_port()), "ipvsadm", existing_servers=existing_server(real_server(9, 0))) == [
        f"-d {server}"
    ]
    assert part_lines(
        sync_input(service_port()), "ipvsadm", existing_servers=existing_server(real_server(9, 0, 3))
    ) == [f"-e {server} -m -w 0"]


def test_returning_endpoint_is_deleted_and_added() -> None:
    assert part_lines(
        sync_input(service_port("10.244.1.1"), before=()),
        "ipvsadm",
        existing_servers=existing_server(real_server(1, 0, 3)),
    ) == [
        "-d -t 10.96.0.1:80 -r 10.244.1.1:8080",
        "-a -t 10.96.0.1:80 -r 10.244.1.1:8080 -m -w 1",
    ]


def test_first_sync_edits_all_weights_if_one_differs() -> None:
    port = service_port("10.244.1.1", "10.244.1.2")
    existing = existing_server(real_server(1, 0), real_server(2))
    assert part_lines(sync_input(port), "ipvsadm", existing_servers=existing) == [
        "-e -t 10.96.0.1:80 -r 10.244.1.1:8080 -m -w 1",
        "-e -t 10.96.0.1:80 -r 10.244.1.2:8080 -m -w 1",
    ]
    assert (
        part_lines(sync_input(port), "ipvsadm", existing_servers=existing_server(real_server(1), real_server(2))) == []
    )


def test_last_claim_of_an_address_and_port_wins() -> None:
    first = service_port("10.244.1.1", name="shop/a:x", external_ips=("198.51.100.1",), affinity_seconds=60)
    second = service_port("10.244.1.2", name="shop/b:x", ip="10.96.0.2", external_ips=("198.51.100.1",))
    text = [line for line in part_lines(sync_input(first, second), "ipvsadm") if "198.51.100.1" in line]
    assert text == ["-A -t 198.51.100.1:80 -s rr", "-a -t 198.51.100.1:80 -r 10.244.1.2:8080 -m -w 1"]


def test_stale_servers_are_deleted_except_in_excluded_cidrs() -> None:
    existing_servers = [
        existing_server(address=address)[0] for address in ("10.96.0.1", "10.96.0.2", "10.9.0.1", "fd00:96::1")
    ]
    cluster = sync_input(service_port())
    assert part_lines(cluster, "ipvsadm-stale", existing_servers=existing_servers) == [
        "-D -t 10.96.0.2:80",
        "-D -t 10.9.0.1:80",
    ]
    assert part_lines(
        cluster, "ipvsadm-stale", existing_servers=existing_servers, excluded_cidrs=("10.9.0.0/16", "fd00::/8")
    ) == ["-D -t 10.96.0.2:80"]
    assert part_lines(sync_input(node=NODE6), "ipvsadm-stale", existing_servers=existing_servers) == [
        "-D -t [fd00:96::1]:80"
    ]


def test_address_with_several_ports_is_bound_once() -> None:
    cluster = sync_input(service_port(name="shop/web:a"), service_port(name="shop/web:b", port=81))
    assert part_lines(cluster, "addresses") == ["address add 10.96.0.1/32 dev kube-ipvs0"]
    assert part_lines(cluster, "addresses", existing_addresses=("10.96.0.1",)) == []


def test_addresses_of_other_interfaces_are_bound_only_by_old_versions() -> None:
    cluster = sync_input(service_port(external_ips=("192.0.2.10", "198.51.100.1"), load_balancer_vips=("192.0.2.11",)))
    for rule_version in NEWER:
        assert addresses_to_bind(cluster, rule_version) == ("10.96.0.1", "198.51.100.1")
    for rule_version in OLDER:
        assert addresses_to_bind(cluster, rule_version) == ("10.96.0.1", "192.0.2.10", "198.51.100.1", "192.0.2.11")


@pytest.mark.parametrize("rule_version", RuleVersion)
def test_old_versions_serve_no_node_port_at_bound_addresses(rule_version: RuleVersion) -> None:
    """Unless NodePort networks are configured (document 002 of docs/verification.md#original-documents)."""
    cluster = sync_input(service_port(node_port=30080))
    text = part_lines(cluster, "ipvsadm", rule_version=rule_version, existing_addresses=("192.0.2.10",))
    assert ("-A -t 192.0.2.10:30080 -s rr" in text) == (rule_version in NEWER)
    assert "-A -t 192.0.2.11:30080 -s rr" in text
    node = Node(Family.IPV4, "192.0.2.10", NODE.local_addresses, ("192.0.2.0/24",))
    text = part_lines(
        sync_input(service_port(node_port=30080), node=node),
        "ipvsadm",
        rule_version=rule_version,
        existing_addresses=("192.0.2.10",),
    )
    assert "-A -t 192.0.2.10:30080 -s rr" in text


def test_node_port_addresses_are_never_bound() -> None:
    assert addresses_to_bind(sync_input(service_port(node_port=30080))) == ("10.96.0.1",)


def test_stale_bound_addresses_are_removed() -> None:
    existing = ("10.96.0.1", "10.96.0.9", "169.254.20.10", "fd00:96::9", "fe8::1", "fe80::1", "127.0.0.1", "::1")
    assert part_lines(sync_input(service_port()), "addresses-stale", existing_addresses=existing) == [
        "address del 10.96.0.9/32 dev kube-ipvs0",
        "address del 169.254.20.10/32 dev kube-ipvs0",
    ]
    assert part_lines(sync_input(node=NODE6), "addresses-stale", existing_addresses=existing) == [
        "address del fd00:96::9/128 dev kube-ipvs0",
        "address del fe8::1/128 dev kube-ipvs0",
    ]


def test_link_local_external_ip_of_another_interface_is_bound() -> None:
    node = Node(Family.IPV6, None, ("2001:db8::10", "fe80::1"))
    assert addresses_to_bind(
        sync_input(service_port(ip="fd00:96::1", external_ips=("fe80::1", "2001:db8::10")), node=node)
    ) == (
        "fd00:96::1",
        "fe80::1",
    )


def test_old_versions_remove_only_addresses_of_deleted_servers() -> None:
    existing: dict[str, Any] = {
        "existing_addresses": ("10.96.0.8", "10.96.0.9"),
        "existing_servers": existing_server(address="10.96.0.9"),
    }
    for rule_version, addresses in [
        (RuleVersion.DOCUMENT_002, ["10.96.0.9"]),
        (RuleVersion.NEWEST, ["10.96.0.8", "10.96.0.9"]),
    ]:
        text = part_lines(sync_input(), "addresses-stale", rule_version=rule_version, **existing)
        assert text == [f"address del {address}/32 dev kube-ipvs0" for address in addresses]
    tail = ("addresses-stale", "ipvsadm-stale")
    assert sync(sync_input(), Settings()).part_names[-4:-2] == tail
    assert sync(sync_input(), Settings(rule_version=RuleVersion.DOCUMENT_003)).part_names[-4:-2] == tail[::-1]
