"""Tests of the IPVS mode's iptables rules: their order and conditions (docs/behaviour/ipvs.md#rules)."""

from typing import Any

from knft.families import Family
from knft.protocols import Protocol
from knft_compat.ipvs import RuleVersion
from knft_compat.sync_input import Masquerade, Node
from tests.compat.ipvs_render import NODE6, declared_chains, part_lines, rules, service_port, sync_input
from tests.support.kube_objects import parametrize_cases

SET = "-m set --match-set"
LOAD_BALANCER: dict[str, Any] = {"load_balancer_vips": ("203.0.113.9",)}
LOCAL: dict[str, Any] = {"external_policy_local": True}
CLUSTER_IP = '-m comment --comment "Kubernetes service cluster ip + port for masquerade purpose"'


def comment_match(comment: str) -> str:
    """Return a comment match as in a rule."""
    return f'-m comment --comment "{comment}"'


def test_nat_precedes_filter_and_both_flush_their_chains() -> None:
    text = part_lines(sync_input(), "iptables-restore")
    assert [line for line in text if line[0] in "*C"] == ["*nat", "COMMIT", "*filter", "COMMIT"]
    nat = ["KUBE-SERVICES", "KUBE-POSTROUTING", "KUBE-NODE-PORT", "KUBE-LOAD-BALANCER", "KUBE-MARK-MASQ"]
    assert declared_chains(sync_input(), "nat") == nat
    assert declared_chains(sync_input(), "filter") == [
        "KUBE-FORWARD",
        "KUBE-NODE-PORT",
        "KUBE-PROXY-FIREWALL",
        "KUBE-SOURCE-RANGES-FIREWALL",
        "KUBE-IPVS-FILTER",
        "KUBE-IPVS-OUT-FILTER",
    ]


def test_cluster_without_services_has_only_static_rules() -> None:
    empty = sync_input()
    assert rules(empty, "KUBE-SERVICES") == [
        "-s 127.0.0.0/8 -j RETURN",
        "-m addrtype --dst-type LOCAL -j KUBE-NODE-PORT",
    ]
    assert rules(empty, "KUBE-LOAD-BALANCER") == ["-j KUBE-MARK-MASQ"]
    assert rules(empty, "KUBE-NODE-PORT") == []
    assert rules(empty, "KUBE-MARK-MASQ") == ["-j MARK --or-mark 0x00004000"]
    assert rules(empty, "KUBE-SOURCE-RANGES-FIREWALL", table="filter") == ["-j DROP"]
    assert rules(empty, "KUBE-PROXY-FIREWALL", table="filter") == []
    assert rules(empty, "KUBE-IPVS-OUT-FILTER", table="filter") == []
    assert rules(empty, "KUBE-FORWARD", table="filter") == [
        f"{comment_match('kubernetes forwarding rules')} -m mark --mark 0x00004000/0x00004000 -j ACCEPT",
        f"{comment_match('kubernetes forwarding conntrack rule')} -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
    ]
    assert rules(empty, "KUBE-NODE-PORT", table="filter") == [
        f'-m comment --comment "Kubernetes health check node port" {SET} KUBE-HEALTH-CHECK-NODE-PORT dst -j ACCEPT'
    ]
    assert rules(empty, "KUBE-IPVS-FILTER", table="filter") == [
        f"{SET} KUBE-LOAD-BALANCER dst,dst -j RETURN",
        f"{SET} KUBE-CLUSTER-IP dst,dst -j RETURN",
        f"{SET} KUBE-EXTERNAL-IP dst,dst -j RETURN",
        f"{SET} KUBE-EXTERNAL-IP-LOCAL dst,dst -j RETURN",
        f"{SET} KUBE-HEALTH-CHECK-NODE-PORT dst -j RETURN",
        f"-m conntrack --ctstate NEW {SET} KUBE-IPVS-IPS dst -j REJECT",
    ]


def test_hairpin_masquerade_precedes_mark_check() -> None:
    comment = '-m comment --comment "Kubernetes endpoints dst ip:port, source ip for solving hairpin purpose"'
    assert rules(sync_input(service_port("L10.244.1.1")), "KUBE-POSTROUTING") == [
        f"{comment} {SET} KUBE-LOOP-BACK dst,dst,src -j MASQUERADE",
        "-m mark ! --mark 0x00004000/0x00004000 -j RETURN",
        "-j MARK --xor-mark 0x00004000",
        '-m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE --random-fully',
    ]


def test_masquerade_rules_follow_the_mark_and_random_fully_flags() -> None:
    cluster = sync_input(masquerade=Masquerade(mark=1 << 15, random_fully=False))
    assert rules(cluster, "KUBE-POSTROUTING")[1:] == [
        "-j MARK --xor-mark 0x00008000",
        '-m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE',
    ]


@parametrize_cases(
    {
        "all packets": ({"masquerade": Masquerade(masquerade_all=True)}, "dst,dst"),
        "packets not sent by pods": ({}, "dst,dst ! -s 10.244.0.0/16"),
        "packets from a cluster IP, if local traffic cannot be detected": ({"pods": None}, "src,dst"),
    }
)
def test_masquerading_at_cluster_ips_depends_on_the_flags(case: Any) -> None:
    options, expected = case
    assert rules(sync_input(service_port(), **options), "KUBE-SERVICES")[1:] == [
        f"{CLUSTER_IP} {SET} KUBE-CLUSTER-IP {expected} -j KUBE-MARK-MASQ",
        "-m addrtype --dst-type LOCAL -j KUBE-NODE-PORT",
        f"{SET} KUBE-CLUSTER-IP dst,dst -j ACCEPT",
    ]


@parametrize_cases(
    {
        "policy Cluster": ({}, "KUBE-EXTERNAL-IP", "for masquerade and filter purpose"),
        "policy Local": (LOCAL, "KUBE-EXTERNAL-IP-LOCAL", "with externalTrafficPolicy=local"),
    }
)
def test_external_ips_are_masqueraded_unless_policy_local(case: Any) -> None:
    fields, name, suffix = case
    match = f"{comment_match(f'Kubernetes service external ip + port {suffix}')} {SET} {name} dst,dst"
    expected = [
        *([] if fields else [f"{match} -j KUBE-MARK-MASQ"]),
        f"{match} -m physdev ! --physdev-is-in -m addrtype ! --src-type LOCAL -j ACCEPT",
        f"{match} -m addrtype --dst-type LOCAL -j ACCEPT",
    ]
    cluster = sync_input(service_port(external_ips=("198.51.100.1",), **fields))
    assert rules(cluster, "KUBE-SERVICES")[2:-2] == expected


def test_load_balancer_source_ranges_are_checked_in_the_filter_table() -> None:
    cluster = sync_input(service_port(**LOAD_BALANCER, **LOCAL, load_balancer_source_ranges=("192.0.2.0/24",)))
    portal = '-m comment --comment "Kubernetes service lb portal"'
    assert rules(cluster, "KUBE-SERVICES")[1] == f"{portal} {SET} KUBE-LOAD-BALANCER dst,dst -j KUBE-LOAD-BALANCER"
    assert rules(cluster, "KUBE-SERVICES")[-1] == f"{SET} KUBE-LOAD-BALANCER dst,dst -j ACCEPT"
    balancing = "Kubernetes service load balancer ip + port"
    local, ranged = f"{balancing} with externalTrafficPolicy=local", f"{balancing} for load balancer with sourceRange"
    cidr, own = (
        f"{balancing} + source cidr for packet filter purpose",
        f"{balancing} + source IP for packet filter purpose",
    )
    assert rules(cluster, "KUBE-LOAD-BALANCER") == [
        f"{comment_match(local)} {SET} KUBE-LOAD-BALANCER-LOCAL dst,dst -j RETURN",
        "-j KUBE-MARK-MASQ",
    ]
    assert rules(cluster, "KUBE-PROXY-FIREWALL", table="filter") == [
        f"{comment_match(ranged)} {SET} KUBE-LOAD-BALANCER-FW dst,dst -j KUBE-SOURCE-RANGES-FIREWALL"
    ]
    assert rules(cluster, "KUBE-SOURCE-RANGES-FIREWALL", table="filter") == [
        f"{comment_match(cidr)} {SET} KUBE-LOAD-BALANCER-SOURCE-CIDR dst,dst,src -j RETURN",
        f"{comment_match(own)} {SET} KUBE-LOAD-BALANCER-SOURCE-IP dst,dst,src -j RETURN",
        "-j DROP",
    ]


def test_node_outside_source_ranges_is_denied() -> None:
    cluster = sync_input(service_port(**LOAD_BALANCER, load_balancer_source_ranges=("10.0.0.0/8",)))
    assert rules(cluster, "KUBE-IPVS-OUT-FILTER", table="filter") == [
        "-s 203.0.113.9 -m ipvs --vaddr 203.0.113.9 --vproto tcp --vport 80 -j DROP"
    ]


@parametrize_cases(
    {
        "IPv4": (Node(Family.IPV4), "203.0.113.9", "127.0.0.0/8"),
        "IPv6": (Node(Family.IPV6), "2001:db8::9", "::/1"),
    }
)
def test_node_without_an_address_uses_loopback(case: Any) -> None:
    node, vip, cidr = case
    ip = "10.96.0.1" if node.family is Family.IPV4 else "fd00:96::1"
    port = service_port(ip=ip, load_balancer_vips=(vip,), load_balancer_source_ranges=(cidr,))
    assert rules(sync_input(port, node=node), "KUBE-IPVS-OUT-FILTER", table="filter") == []


def test_load_balancer_without_source_ranges_has_no_deny_rule() -> None:
    assert rules(sync_input(service_port(**LOAD_BALANCER)), "KUBE-IPVS-OUT-FILTER", table="filter") == []


def test_node_ports_are_masqueraded_unless_policy_local() -> None:
    protocols: tuple[Protocol, ...] = ("TCP", "UDP", "SCTP")
    ports = [service_port(node_port=number, protocol=protocol, **LOCAL) for number, protocol in enumerate(protocols, 1)]
    assert [rule.partition("-m set ")[2] for rule in rules(sync_input(*ports), "KUBE-NODE-PORT")] == [
        "--match-set KUBE-NODE-PORT-LOCAL-TCP dst -j RETURN",
        "--match-set KUBE-NODE-PORT-TCP dst -j KUBE-MARK-MASQ",
        "--match-set KUBE-NODE-PORT-LOCAL-UDP dst -j RETURN",
        "--match-set KUBE-NODE-PORT-UDP dst -j KUBE-MARK-MASQ",
        "--match-set KUBE-NODE-PORT-LOCAL-SCTP-HASH dst,dst -j RETURN",
        "--match-set KUBE-NODE-PORT-SCTP-HASH dst,dst -j KUBE-MARK-MASQ",
    ]
    starts = [rule.split(" -m ", 1)[0] for rule in rules(sync_input(*ports), "KUBE-NODE-PORT")]
    assert starts == ["-p tcp", "-p tcp", "-p udp", "-p udp", "-p sctp", "-p sctp"]


def test_ipv6_uses_its_own_loopback_and_sets() -> None:
    cluster = sync_input(service_port(ip="fd00:96::1"), node=NODE6)
    assert rules(cluster, "KUBE-SERVICES")[0] == "-s ::1/128 -j RETURN"
    assert rules(cluster, "KUBE-SERVICES")[-1] == f"{SET} KUBE-6-CLUSTER-IP dst,dst -j ACCEPT"


def test_each_jump_is_inserted_first() -> None:
    inserted = [line.partition(" -I ")[2] for line in part_lines(sync_input(), "jumps") if " -I " in line]
    assert [line.replace(" -m comment --comment", "") for line in inserted] == [
        "OUTPUT -t nat 'kubernetes service portals' -j KUBE-SERVICES",
        "PREROUTING -t nat 'kubernetes service portals' -j KUBE-SERVICES",
        "POSTROUTING -t nat 'kubernetes postrouting rules' -j KUBE-POSTROUTING",
        "FORWARD -t filter 'kubernetes forwarding rules' -j KUBE-FORWARD",
        "INPUT -t filter 'kubernetes health check rules' -j KUBE-NODE-PORT",
        "INPUT -t filter 'kube-proxy firewall rules' -j KUBE-PROXY-FIREWALL",
        "FORWARD -t filter 'kube-proxy firewall rules' -j KUBE-PROXY-FIREWALL",
        "INPUT -t filter 'kubernetes ipvs access filter' -j KUBE-IPVS-FILTER",
        "OUTPUT -t filter 'kubernetes ipvs access filter' -j KUBE-IPVS-OUT-FILTER",
    ]  # fmt: skip


def test_flushed_chains_and_jump_targets_are_created_first() -> None:
    for rule_version in RuleVersion:
        created = [
            tuple(line.split()[i] for i in (8, 6))
            for line in part_lines(sync_input(), "chains", rule_version=rule_version)
        ]
        flushed = [
            (name, chain) for name in ("nat", "filter") for chain in declared_chains(sync_input(), name, rule_version)
        ]
        assert [chain for chain in created if chain != ("nat", "KUBE-MARK-DROP")] == flushed
