"""Tests of the rules of one Service port (docs/behaviour/iptables.md#service-ports)."""

from typing import Any

from knft.model.endpoint import endpoint_key
from knft.model.names import ServicePortName
from knft_compat.iptables.names import endpoint_chain
from tests.compat.iptables_render import PODS, chains, endpoints, render, restore_input, rules, service
from tests.support.kube_objects import parametrize_cases as cases

HASH = "XPGD46QRK7WJZT7O"
SVC, SVL, EXT, FW = (f"KUBE-{kind}-{HASH}" for kind in ("SVC", "SVL", "EXT", "FW"))
FIRST = "KUBE-SEP-SXIVWICOYRO3J4NJ"
TCP = "-m tcp -p tcp"
FIXED = 4
"""Chains of the nat table that always exist."""
DETECT = ("--cluster-cidr", PODS)


def service_port_chains(text: str) -> list[str]:
    """Return the chains of the Service port, in the order of their declaration."""
    return chains(text)[FIXED:]


def service_rules(text: str) -> list[str]:
    """Return the rules that match the frontends of Services."""
    return rules(text, "KUBE-SERVICES")[:-1]


def sep(address: str) -> str:
    """Return the chain of an endpoint."""
    return endpoint_chain(ServicePortName("ns1", "svc1", "p80", "TCP"), endpoint_key(address, 80))


def test_cluster_ip_rules_lead_to_the_chain_of_the_endpoint() -> None:
    text = restore_input([service(), endpoints("ns1/svc1", "10.180.0.1")], *DETECT)
    match = f'-m comment --comment "ns1/svc1:p80 cluster IP" {TCP} -d 10.96.0.1 --dport 80'
    assert service_rules(text) == [f"{match} -j {SVC}"]
    assert service_port_chains(text) == [SVC, FIRST]
    assert rules(text, SVC) == [
        f"{match} ! -s 10.244.0.0/16 -j KUBE-MARK-MASQ",
        f'-m comment --comment "ns1/svc1:p80 -> 10.180.0.1:80" -j {FIRST}',
    ]
    assert rules(text, FIRST) == [
        "-m comment --comment ns1/svc1:p80 -s 10.180.0.1 -j KUBE-MARK-MASQ",
        f"-m comment --comment ns1/svc1:p80 {TCP} -j DNAT --to-destination 10.180.0.1:80",
    ]
    assert rules(text, "KUBE-SERVICES", "filter") == []


@cases(
    {
        "cidr": (["--cluster-cidr", PODS], ["! -s 10.244.0.0/16 "]),
        "bridge": (["--detect-local-mode", "BridgeInterface", "--pod-bridge-interface", "br0"], ["! -i br0 "]),
        "interface prefix": (
            ["--detect-local-mode", "InterfaceNamePrefix", "--pod-interface-name-prefix", "cali"],
            ["! -i cali+ "],
        ),
        "no detection": ([], []),
        "masquerade all": (["--masquerade-all"], [""]),
        "masquerade all and cidr": (["--masquerade-all", "--cluster-cidr", PODS], [""]),
    }
)
def test_masquerading_at_cluster_ips_depends_on_the_flags(case: tuple[list[str], list[str]]) -> None:
    flags, conditions = case
    text = restore_input([service(), endpoints("ns1/svc1", "10.180.0.1")], *flags)
    match = f'-m comment --comment "ns1/svc1:p80 cluster IP" {TCP} -d 10.96.0.1 --dport 80'
    assert [line for line in rules(text, SVC) if "MARK" in line] == [
        f"{match} {condition}-j KUBE-MARK-MASQ" for condition in conditions
    ]


def test_endpoints_are_chosen_with_equal_probability() -> None:
    addresses = [f"10.180.0.{number}" for number in range(1, 8)]
    text = restore_input([service(), endpoints("ns1/svc1", *addresses)])
    expected = ["0.1428571429", "0.1666666667", "0.2000000000", "0.2500000000", "0.3333333333", "0.5000000000"]
    matches = [*(f" -m statistic --mode random --probability {probability}" for probability in expected), ""]
    assert rules(text, SVC) == [
        f'-m comment --comment "ns1/svc1:p80 -> {address}:80"{match} -j {sep(address)}'
        for address, match in zip(addresses, matches, strict=True)
    ]


def test_affinity_rules_come_first() -> None:
    affinity: dict[str, Any] = {
        "sessionAffinity": "ClientIP",
        "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 77}},
    }
    text = restore_input([service(**affinity), endpoints("ns1/svc1", "10.180.0.1", "10.180.0.2")])
    chain = {address: sep(address) for address in ("10.180.0.1", "10.180.0.2")}
    half = "-m statistic --mode random --probability 0.5000000000"
    recent = "-m recent --name {0} --rcheck --seconds 77 --reap -j {0}"
    assert rules(text, SVC) == [
        *(f'-m comment --comment "ns1/svc1:p80 -> {it}:80" {recent.format(name)}' for it, name in chain.items()),
        f'-m comment --comment "ns1/svc1:p80 -> 10.180.0.1:80" {half} -j {chain["10.180.0.1"]}',
        f'-m comment --comment "ns1/svc1:p80 -> 10.180.0.2:80" -j {chain["10.180.0.2"]}',
    ]
    assert rules(text, FIRST)[1] == (
        f"-m comment --comment ns1/svc1:p80 -m recent --name {FIRST} --set {TCP} -j DNAT --to-destination 10.180.0.1:80"
    )


def test_affinity_timeout_defaults_to_three_hours() -> None:
    text = restore_input([service(sessionAffinity="ClientIP"), endpoints("ns1/svc1", "10.180.0.1")])
    assert "--rcheck --seconds 10800 --reap" in rules(text, SVC)[0]


def full_service(**spec: Any) -> dict[str, Any]:
    """Return a Service with every kind of frontend."""
    return service(
        vips=("203.0.113.1", "203.0.113.2"),
        port={"nodePort": 30080},
        externalIPs=["198.51.100.1", "198.51.100.2"],
        **spec,
    )


def test_frontends_are_in_kube_proxy_order() -> None:
    text = restore_input([full_service(), endpoints("ns1/svc1", "10.180.0.1")], *DETECT)
    expected = [("cluster IP", "10.96.0.1", SVC), *(("external IP", f"198.51.100.{it}", EXT) for it in (1, 2)),
                *(("loadbalancer IP", f"203.0.113.{it}", EXT) for it in (1, 2))]  # fmt: skip
    assert service_rules(text) == [
        f'-m comment --comment "ns1/svc1:p80 {frontend_kind}" {TCP} -d {address} --dport 80 -j {chain}'
        for frontend_kind, address, chain in expected
    ]
    label = f"-m comment --comment ns1/svc1:p80 {TCP}"
    assert rules(text, "KUBE-NODEPORTS") == [
        f"{label} -d 127.0.0.0/8 --dport 30080 -m nfacct --nfacct-name localhost_nps_accepted_pkts -j {EXT}",
        f"{label} --dport 30080 -j {EXT}",
    ]
    assert service_port_chains(text) == [EXT, SVC, FIRST]
    assert rules(text, EXT) == [
        '-m comment --comment "masquerade traffic for ns1/svc1:p80 external destinations" -j KUBE-MARK-MASQ',
        f"-j {SVC}",
    ]
    assert rules(text, "KUBE-EXTERNAL-SERVICES", "filter") == []


def refusing_rules(reason: str, verdict: str) -> list[str]:
    """Return the rules that refuse every external frontend, in order."""
    label = f'-m comment --comment "ns1/svc1:p80 {reason}"'
    vips = [f"{label} {TCP} -d 203.0.113.{it} --dport 80 -j {verdict}" for it in (1, 2)]
    return [
        *(f"{label} {TCP} -d 198.51.100.{it} --dport 80 -j {verdict}" for it in (1, 2)),
        *vips,
        f"{label} -m addrtype --dst-type LOCAL {TCP} --dport 30080 -j {verdict}",
    ]


def test_frontends_without_endpoints_are_rejected() -> None:
    text = restore_input([full_service(loadBalancerSourceRanges=["192.0.2.0/24"]), endpoints()], *DETECT)
    assert rules(text, "KUBE-SERVICES", "filter") == [
        f'-m comment --comment "ns1/svc1:p80 has no endpoints" {TCP} -d 10.96.0.1 --dport 80 -j REJECT'
    ]
    assert rules(text, "KUBE-EXTERNAL-SERVICES", "filter") == refusing_rules("has no endpoints", "REJECT")
    assert service_rules(text) == rules(text, "KUBE-NODEPORTS") == service_port_chains(text) == []
    assert rules(text, "KUBE-PROXY-FIREWALL", "filter") == []


_TO_EXTERNAL = "traffic for ns1/svc1:p80 external destinations"
_LOCAL = "-m addrtype --src-type LOCAL"
POLICY_LOCAL_SHORT_CUTS = [
    f'-m comment --comment "pod {_TO_EXTERNAL}" -s 10.244.0.0/16 -j {SVC}',
    f'-m comment --comment "masquerade LOCAL {_TO_EXTERNAL}" {_LOCAL} -j KUBE-MARK-MASQ',
    f'-m comment --comment "route LOCAL {_TO_EXTERNAL}" {_LOCAL} -j {SVC}',
]


def test_external_policy_local_uses_local_endpoints() -> None:
    local = full_service(externalTrafficPolicy="Local")
    text = restore_input([local, endpoints("ns1/svc1", "10.180.0.1", "L10.180.0.2")], *DETECT)
    assert service_port_chains(text) == [EXT, SVC, SVL, FIRST, sep("10.180.0.2")]
    assert rules(text, EXT) == [*POLICY_LOCAL_SHORT_CUTS, f"-j {SVL}"]
    assert rules(text, SVL) == [f'-m comment --comment "ns1/svc1:p80 -> 10.180.0.2:80" -j {sep("10.180.0.2")}']
    assert rules(text, "KUBE-EXTERNAL-SERVICES", "filter") == []


def test_external_policy_local_without_local_endpoints_drops_remote_clients() -> None:
    text = restore_input([full_service(externalTrafficPolicy="Local"), endpoints("ns1/svc1", "10.180.0.1")], *DETECT)
    assert service_port_chains(text) == [EXT, SVC, FIRST]
    assert rules(text, EXT) == POLICY_LOCAL_SHORT_CUTS
    assert rules(text, "KUBE-EXTERNAL-SERVICES", "filter") == refusing_rules("has no local endpoints", "DROP")
    assert len(service_rules(text)) == 5
    assert len(rules(text, "KUBE-NODEPORTS")) == 2


def test_external_policy_local_without_detection_omits_the_pod_rule() -> None:
    text = restore_input([full_service(externalTrafficPolicy="Local"), endpoints("ns1/svc1", "L10.180.0.1")])
    assert rules(text, EXT) == [*POLICY_LOCAL_SHORT_CUTS[1:], f"-j {SVL}"]


def test_internal_policy_local_uses_local_endpoints() -> None:
    items = [service(internalTrafficPolicy="Local"), endpoints("ns1/svc1", "10.180.0.1", "L10.180.0.2")]
    text = restore_input(items, *DETECT)
    match = f'-m comment --comment "ns1/svc1:p80 cluster IP" {TCP} -d 10.96.0.1 --dport 80'
    assert service_rules(text) == [f"{match} -j {SVL}"]
    assert service_port_chains(text) == [SVL, sep("10.180.0.2")]
    assert rules(text, SVL)[0] == f"{match} ! -s 10.244.0.0/16 -j KUBE-MARK-MASQ"


def test_internal_policy_local_without_a_local_endpoint_drops() -> None:
    text = restore_input([service(internalTrafficPolicy="Local"), endpoints("ns1/svc1", "10.180.0.1")], *DETECT)
    assert rules(text, "KUBE-SERVICES", "filter") == [
        f'-m comment --comment "ns1/svc1:p80 has no local endpoints" {TCP} -d 10.96.0.1 --dport 80 -j DROP'
    ]
    assert service_rules(text) == service_port_chains(text) == []


def test_terminating_endpoints_serve_if_there_are_no_others() -> None:
    local = full_service(externalTrafficPolicy="Local")
    text = restore_input([local, endpoints("ns1/svc1", "10.180.0.1", "LT10.180.0.2")], *DETECT)
    assert service_port_chains(text) == [EXT, SVC, SVL, FIRST, sep("10.180.0.2")]
    assert [line.split()[-1] for line in rules(text, SVC)[1:]] == [FIRST]
    assert [line.split()[-1] for line in rules(text, SVL)] == [sep("10.180.0.2")]


@cases(
    {
        "node inside": (["--node-ip", "192.0.2.7"], ["203.0.113.1", "203.0.113.2"]),
        "node outside": (["--node-ip", "192.0.3.7"], []),
        "node without an address": ([], []),
    }
)
def test_source_ranges_have_a_firewall_chain(case: tuple[list[str], list[str]]) -> None:
    flags, vip_sources = case
    ranges = ["192.0.2.0/24", "198.18.0.0/15"]
    item = full_service(loadBalancerSourceRanges=[" 192.0.2.0/24", ranges[1], "2001:db8::/32"])
    text = restore_input([item, endpoints("ns1/svc1", "10.180.0.1")], *flags)
    vips = [line for line in service_rules(text) if "loadbalancer" in line]
    assert [line.split()[-1] for line in vips] == [FW, FW]
    assert service_port_chains(text) == [EXT, FW, SVC, FIRST]
    label = '-m comment --comment "ns1/svc1:p80 loadbalancer IP"'
    assert rules(text, FW) == [
        *(f"{label} -s {source} -j {EXT}" for source in (*ranges, *vip_sources)),
        '-m comment --comment "other traffic to ns1/svc1:p80 will be dropped by KUBE-PROXY-FIREWALL"',
    ]
    assert rules(text, "KUBE-PROXY-FIREWALL", "filter") == [
        f'-m comment --comment "ns1/svc1:p80 traffic not accepted by {FW}" {TCP} -d 203.0.113.{it} --dport 80 -j DROP'
        for it in (1, 2)
    ]


def test_node_without_an_address_uses_loopback() -> None:
    item = full_service(loadBalancerSourceRanges=["127.0.0.0/8"])
    text = restore_input([item, endpoints("ns1/svc1", "10.180.0.1")])
    assert [line.split()[-3] for line in rules(text, FW)[:-1]] == ["127.0.0.0/8", "203.0.113.1", "203.0.113.2"]


def test_source_ranges_of_the_other_family_are_ignored() -> None:
    item = full_service(loadBalancerSourceRanges=["2001:db8::/32"])
    assert FW not in service_port_chains(restore_input([item, endpoints("ns1/svc1", "10.180.0.1")]))


def test_load_balancer_ip_mode_proxy_is_ignored() -> None:
    item = full_service()
    item["status"]["loadBalancer"]["ingress"][0]["ipMode"] = "Proxy"
    text = restore_input([item, endpoints("ns1/svc1", "10.180.0.1")])
    assert "203.0.113.1" not in text
    assert "203.0.113.2" in text


@cases({"with endpoints": ["10.180.0.1"], "without": []})
def test_health_check_port_is_accepted(case: list[str]) -> None:
    item = full_service(externalTrafficPolicy="Local", healthCheckNodePort=32000)
    text = restore_input([item, endpoints("ns1/svc1", *case)])
    assert rules(text, "KUBE-NODEPORTS", "filter") == [
        f'-m comment --comment "ns1/svc1:p80 health check node port" {TCP} --dport 32000 -j ACCEPT'
    ]


def test_ipv6_rules_have_ipv6_addresses_and_options() -> None:
    item = service(
        clusterIP="fd00:10:96::1", ipFamilies=["IPv6"], clusterIPs=["fd00:10:96::1"], port={"nodePort": 30080}
    )
    text = restore_input([item, endpoints("ns1/svc1", "fd00:10:244::1")], "--family", "ipv6")
    assert service_rules(text) == [
        f'-m comment --comment "ns1/svc1:p80 cluster IP" {TCP} -d fd00:10:96::1 --dport 80 -j {SVC}'
    ]
    assert rules(text, "KUBE-NODEPORTS") == [f"-m comment --comment ns1/svc1:p80 {TCP} --dport 30080 -j {EXT}"]
    assert rules(text, sep("fd00:10:244::1")) == [
        "-m comment --comment ns1/svc1:p80 -s fd00:10:244::1 -j KUBE-MARK-MASQ",
        f"-m comment --comment ns1/svc1:p80 {TCP} -j DNAT --to-destination [fd00:10:244::1]:80",
    ]


@cases({"UDP": "udp", "SCTP": "sctp"})
def test_each_protocol_uses_its_own_match(case: str) -> None:
    port = {"name": "", "protocol": case.upper()}
    text = restore_input([service(port=port), endpoints("ns1/svc1", "10.180.0.1", port=port)])
    assert service_rules(text)[0].startswith(
        f'-m comment --comment "ns1/svc1 cluster IP" -m {case} -p {case} -d 10.96.0.1 '
    )


def test_contested_frontends_are_written_for_every_service() -> None:
    objects = [service("a/old"), service("b/new"), endpoints("a/old", "10.180.0.1"), endpoints("b/new", "10.180.0.2")]
    assert [line.split()[3] for line in service_rules(restore_input(objects))] == ['"a/old:p80', '"b/new:p80']


def test_number_of_rules_is_linear_in_services_and_endpoints() -> None:
    """Each Service has a frontend and a masquerade rule, each endpoint a selection rule and two rules of its own."""
    services, endpoints_each = 20, 7
    objects = []
    for number in range(services):
        name = f"ns/svc-{number}"
        objects += [service(name, clusterIP=f"10.96.1.{number}"),
                    endpoints(name, *(f"10.180.{number}.{it}" for it in range(1, endpoints_each + 1)))]  # fmt: skip
    lines = render(objects, "--part", "iptables-restore", *DETECT).splitlines()
    nat = lines[lines.index("*nat") :]
    assert sum(line.startswith("-A") for line in nat) == 5 + services * (2 + 3 * endpoints_each)
    assert sum(line.startswith(":") for line in nat) == 4 + services * (1 + endpoints_each)
