"""The iptables rules around IPVS, in order, and when they are there (behaviour.md E.5, E.7)."""

from typing import Any

from knft.model.names import Family, Protocol
from knft_compat.cluster import Masquerade, Node
from knft_compat.ipvs import Vintage
from tests.compat.ipvs_page import NODE6, cluster, declared, lines, rules, served
from tests.unit.objects import table

SET = "-m set --match-set"
BALANCED: dict[str, Any] = {"load_balancer_vips": ("203.0.113.9",)}
LOCAL: dict[str, Any] = {"external_policy_local": True}
CLUSTER_IP = '-m comment --comment "Kubernetes service cluster ip + port for masquerade purpose"'


def said(words: str) -> str:
    """Return a comment as it stands in a rule."""
    return f'-m comment --comment "{words}"'


def test_nat_comes_before_filter_and_both_empty_all_their_chains() -> None:
    text = lines(cluster(), "iptables-restore")
    assert [line for line in text if line[0] in "*C"] == ["*nat", "COMMIT", "*filter", "COMMIT"]
    nat = ["KUBE-SERVICES", "KUBE-POSTROUTING", "KUBE-NODE-PORT", "KUBE-LOAD-BALANCER", "KUBE-MARK-MASQ"]
    assert declared(cluster(), "nat") == nat
    assert declared(cluster(), "filter") == [
        "KUBE-FORWARD",
        "KUBE-NODE-PORT",
        "KUBE-PROXY-FIREWALL",
        "KUBE-SOURCE-RANGES-FIREWALL",
        "KUBE-IPVS-FILTER",
        "KUBE-IPVS-OUT-FILTER",
    ]


def test_rules_that_need_no_service() -> None:
    nothing = cluster()
    assert rules(nothing, "KUBE-SERVICES") == [
        "-s 127.0.0.0/8 -j RETURN",
        "-m addrtype --dst-type LOCAL -j KUBE-NODE-PORT",
    ]
    assert rules(nothing, "KUBE-LOAD-BALANCER") == ["-j KUBE-MARK-MASQ"]
    assert rules(nothing, "KUBE-NODE-PORT") == []
    assert rules(nothing, "KUBE-MARK-MASQ") == ["-j MARK --or-mark 0x00004000"]
    assert rules(nothing, "KUBE-SOURCE-RANGES-FIREWALL", table="filter") == ["-j DROP"]
    assert rules(nothing, "KUBE-PROXY-FIREWALL", table="filter") == []
    assert rules(nothing, "KUBE-IPVS-OUT-FILTER", table="filter") == []
    assert rules(nothing, "KUBE-FORWARD", table="filter") == [
        f"{said('kubernetes forwarding rules')} -m mark --mark 0x00004000/0x00004000 -j ACCEPT",
        f"{said('kubernetes forwarding conntrack rule')} -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
    ]
    assert rules(nothing, "KUBE-NODE-PORT", table="filter") == [
        f'-m comment --comment "Kubernetes health check node port" {SET} KUBE-HEALTH-CHECK-NODE-PORT dst -j ACCEPT'
    ]
    assert rules(nothing, "KUBE-IPVS-FILTER", table="filter") == [
        f"{SET} KUBE-LOAD-BALANCER dst,dst -j RETURN",
        f"{SET} KUBE-CLUSTER-IP dst,dst -j RETURN",
        f"{SET} KUBE-EXTERNAL-IP dst,dst -j RETURN",
        f"{SET} KUBE-EXTERNAL-IP-LOCAL dst,dst -j RETURN",
        f"{SET} KUBE-HEALTH-CHECK-NODE-PORT dst -j RETURN",
        f"-m conntrack --ctstate NEW {SET} KUBE-IPVS-IPS dst -j REJECT",
    ]


def test_hairpin_connections_are_masqueraded_before_marks_are_looked_at() -> None:
    words = '-m comment --comment "Kubernetes endpoints dst ip:port, source ip for solving hairpin purpose"'
    assert rules(cluster(served("L10.244.1.1")), "KUBE-POSTROUTING") == [
        f"{words} {SET} KUBE-LOOP-BACK dst,dst,src -j MASQUERADE",
        "-m mark ! --mark 0x00004000/0x00004000 -j RETURN",
        "-j MARK --xor-mark 0x00004000",
        '-m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE --random-fully',
    ]


def test_masquerading_may_have_another_mark_and_ports_that_are_not_random() -> None:
    of = cluster(masquerade=Masquerade(mark=1 << 15, random_fully=False))
    assert rules(of, "KUBE-POSTROUTING")[1:] == [
        "-j MARK --xor-mark 0x00008000",
        '-m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE',
    ]


@table(
    {
        "all of it": ({"masquerade": Masquerade(everything=True)}, "dst,dst"),
        "what pods do not send": ({}, "dst,dst ! -s 10.244.0.0/16"),
        "what has a Service's address as its source, where pods cannot be told": ({"pods": None}, "src,dst"),
    }
)
def test_traffic_to_cluster_ips_is_masqueraded(row: Any) -> None:
    options, expected = row
    assert rules(cluster(served(), **options), "KUBE-SERVICES")[1:] == [
        f"{CLUSTER_IP} {SET} KUBE-CLUSTER-IP {expected} -j KUBE-MARK-MASQ",
        "-m addrtype --dst-type LOCAL -j KUBE-NODE-PORT",
        f"{SET} KUBE-CLUSTER-IP dst,dst -j ACCEPT",
    ]


@table(
    {
        "policy Cluster": ({}, "KUBE-EXTERNAL-IP", "for masquerade and filter purpose"),
        "policy Local": (LOCAL, "KUBE-EXTERNAL-IP-LOCAL", "with externalTrafficPolicy=local"),
    }
)
def test_external_ips_are_accepted_from_outside_and_masqueraded_unless_they_are_local(row: Any) -> None:
    fields, name, words = row
    match = f"{said(f'Kubernetes service external ip + port {words}')} {SET} {name} dst,dst"
    expected = [
        *([] if fields else [f"{match} -j KUBE-MARK-MASQ"]),
        f"{match} -m physdev ! --physdev-is-in -m addrtype ! --src-type LOCAL -j ACCEPT",
        f"{match} -m addrtype --dst-type LOCAL -j ACCEPT",
    ]
    of = cluster(served(external_ips=("198.51.100.1",), **fields))
    assert rules(of, "KUBE-SERVICES")[2:-2] == expected


def test_load_balancers_with_ranges_and_policy_local() -> None:
    of = cluster(served(**BALANCED, **LOCAL, load_balancer_source_ranges=("192.0.2.0/24",)))
    portal = '-m comment --comment "Kubernetes service lb portal"'
    assert rules(of, "KUBE-SERVICES")[1] == f"{portal} {SET} KUBE-LOAD-BALANCER dst,dst -j KUBE-LOAD-BALANCER"
    assert rules(of, "KUBE-SERVICES")[-1] == f"{SET} KUBE-LOAD-BALANCER dst,dst -j ACCEPT"
    balancing = "Kubernetes service load balancer ip + port"
    local, ranged = f"{balancing} with externalTrafficPolicy=local", f"{balancing} for load balancer with sourceRange"
    cidr, own = (
        f"{balancing} + source cidr for packet filter purpose",
        f"{balancing} + source IP for packet filter purpose",
    )
    assert rules(of, "KUBE-LOAD-BALANCER") == [
        f"{said(local)} {SET} KUBE-LOAD-BALANCER-LOCAL dst,dst -j RETURN",
        "-j KUBE-MARK-MASQ",
    ]
    assert rules(of, "KUBE-PROXY-FIREWALL", table="filter") == [
        f"{said(ranged)} {SET} KUBE-LOAD-BALANCER-FW dst,dst -j KUBE-SOURCE-RANGES-FIREWALL"
    ]
    assert rules(of, "KUBE-SOURCE-RANGES-FIREWALL", table="filter") == [
        f"{said(cidr)} {SET} KUBE-LOAD-BALANCER-SOURCE-CIDR dst,dst,src -j RETURN",
        f"{said(own)} {SET} KUBE-LOAD-BALANCER-SOURCE-IP dst,dst,src -j RETURN",
        "-j DROP",
    ]


def test_a_node_outside_all_ranges_may_not_dial_the_load_balancer() -> None:
    of = cluster(served(**BALANCED, load_balancer_source_ranges=("10.0.0.0/8",)))
    assert rules(of, "KUBE-IPVS-OUT-FILTER", table="filter") == [
        "-s 203.0.113.9 -m ipvs --vaddr 203.0.113.9 --vproto tcp --vport 80 -j DROP"
    ]


@table(
    {
        "IPv4": (Node(Family.IPV4), "203.0.113.9", "127.0.0.0/8"),
        "IPv6": (Node(Family.IPV6), "2001:db8::9", "::/1"),
    }
)
def test_a_node_whose_address_nobody_said_has_that_of_loopback(row: Any) -> None:
    node, vip, cidr = row
    ip = "10.96.0.1" if node.family is Family.IPV4 else "fd00:96::1"
    port = served(ip=ip, load_balancer_vips=(vip,), load_balancer_source_ranges=(cidr,))
    assert rules(cluster(port, node=node), "KUBE-IPVS-OUT-FILTER", table="filter") == []


def test_a_load_balancer_without_ranges_is_dialled_by_everybody() -> None:
    assert rules(cluster(served(**BALANCED)), "KUBE-IPVS-OUT-FILTER", table="filter") == []


def test_node_ports_are_masqueraded_unless_they_are_local() -> None:
    protocols: tuple[Protocol, ...] = ("TCP", "UDP", "SCTP")
    ports = [served(node_port=number, protocol=protocol, **LOCAL) for number, protocol in enumerate(protocols, 1)]
    assert [rule.partition("-m set ")[2] for rule in rules(cluster(*ports), "KUBE-NODE-PORT")] == [
        "--match-set KUBE-NODE-PORT-LOCAL-TCP dst -j RETURN",
        "--match-set KUBE-NODE-PORT-TCP dst -j KUBE-MARK-MASQ",
        "--match-set KUBE-NODE-PORT-LOCAL-UDP dst -j RETURN",
        "--match-set KUBE-NODE-PORT-UDP dst -j KUBE-MARK-MASQ",
        "--match-set KUBE-NODE-PORT-LOCAL-SCTP-HASH dst,dst -j RETURN",
        "--match-set KUBE-NODE-PORT-SCTP-HASH dst,dst -j KUBE-MARK-MASQ",
    ]
    starts = [rule.split(" -m ", 1)[0] for rule in rules(cluster(*ports), "KUBE-NODE-PORT")]
    assert starts == ["-p tcp", "-p tcp", "-p udp", "-p udp", "-p sctp", "-p sctp"]


def test_ipv6_has_its_own_loopback_and_its_own_sets() -> None:
    of = cluster(served(ip="fd00:96::1"), node=NODE6)
    assert rules(of, "KUBE-SERVICES")[0] == "-s ::1/128 -j RETURN"
    assert rules(of, "KUBE-SERVICES")[-1] == f"{SET} KUBE-6-CLUSTER-IP dst,dst -j ACCEPT"


def test_jumps_are_put_in_front_one_after_the_other() -> None:
    inserted = [line.partition(" -I ")[2] for line in lines(cluster(), "jumps") if " -I " in line]
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


def test_every_chain_that_is_emptied_is_made_first_and_so_are_the_targets_of_all_rules() -> None:
    for vintage in Vintage:
        made = [tuple(line.split()[i] for i in (8, 6)) for line in lines(cluster(), "chains", vintage=vintage)]
        emptied = [(name, chain) for name in ("nat", "filter") for chain in declared(cluster(), name, vintage)]
        assert [chain for chain in made if chain != ("nat", "KUBE-MARK-DROP")] == emptied
