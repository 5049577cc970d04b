"""The outcomes of each check, and the verdict, without a kernel."""

from typing import Any

import pytest
from msgspec.structs import replace

from knft.families import Family
from knft.interpret.compare.report import DifferenceGroup, Report
from knft.kernel.mark_routes import MarkRoute
from knft.kernel.sysctls import DifferingValue
from knft.model.endpoint import Endpoint
from knft.model.names import ServicePortName
from knft.model.service_port import ServicePort
from knft.preflight.checks import check
from knft.preflight.facts import ConfigurationFacts, ConntrackFacts, Facts, MarkUse, Unread
from knft.preflight.report import Finding, State
from knft.proxy_mode import Mode
from tests.support.node_facts import (
    CONNTRACK,
    DIFF,
    HOST,
    NOT_READ,
    RULES,
    WEB,
    chain,
    compared,
    connection,
    objects,
    ready,
    ready_except,
    saved,
    with_findings,
)

TPROXY = "-A X -p tcp -j TPROXY --on-port 15001 --on-ip 127.0.0.1"
NO_INPUT = Unread("no objects were given", "name objects with -f", failed=False)
DIFFERENT = DifferenceGroup("endpoints", "shop/web:http", None, "other endpoints", classes=2)
ELSEWHERE = DifferenceGroup("verdict", "", None, "dropped", classes=3)
UNDECIDED = DifferenceGroup("undecided", "shop/web:http", None, "uninterpreted", classes=1)
EXPECTED = DifferenceGroup("expected", "shop/web:http", "undefined port", "rejected", classes=4)
LOSING = DifferenceGroup("expected", "shop/web:http", "NodePorts on loopback", "not served", classes=4, is_loss=True)

WITHOUT_NODE = replace(objects(), has_node=False)


def findings(facts: Facts, name: str) -> tuple[Finding, ...]:
    """Return the findings of a point."""
    return next(point.findings for point in check(facts).points if point.name == name)


def host(**changes: Any) -> Facts:
    return ready_except(host=replace(HOST, **changes))


def rules(**changes: Any) -> Facts:
    return ready_except(rules=replace(RULES, **changes))


def in_mode(*modes: Mode) -> Facts:
    return rules(leftovers={mode: ("20 chains in iptables-nft",) if mode in modes else () for mode in Mode})


def marked(*lines: str) -> Facts:
    return rules(saved=saved(*lines))


def in_nftables(found: tuple[MarkUse, ...] | Unread) -> Facts:
    return rules(foreign_tables={"inet mine": found})


def with_comparison(found: Report | Unread) -> Facts:
    return ready_except(comparison=found)


def with_connection(*arguments: Any) -> Facts:
    return ready_except(cluster=objects(connection(*arguments)))


def on_loopback(protocol: str) -> Facts:
    """Return the facts of a node with a connection to the NodePort on the loopback address, which knft serves."""
    found = objects(connection(protocol, "127.0.0.1", 30080, "10.244.1.10", 8080))
    return ready_except(cluster=replace(found, loopback=frozenset({Family.IPV4})))


def direct_connection() -> Facts:
    """Return the facts of a node with a connection to an endpoint whose port has the number of the NodePort."""
    found = objects(connection("TCP", "10.244.1.30", 30080, "10.244.1.30", 30080))
    ipv4 = found.objects[Family.IPV4]
    endpoints = {**ipv4.endpoints, WEB: (Endpoint.at("10.244.1.30", 30080),)}
    changed = {**found.objects, Family.IPV4: replace(ipv4, endpoints=endpoints)}
    return ready_except(cluster=replace(found, objects=changed))


def test_every_point_of_a_ready_node_is_ok() -> None:
    found = check(ready())
    assert (found.verdict, found.summary, found.warnings, found.problems) == ("ready", "ready to switch", 0, 0)
    assert {point.state for point in found.points} == {"ok"}


@pytest.mark.parametrize(
    ("facts", "verdict", "summary"),
    [
        (rules(errors=("refused",)), "undecided", "undecided: 1 check failed, in kube-proxy"),
        (host(unsupported=NOT_READ), "undecided", "undecided: 1 check failed, in kernel"),
        (
            ready_except(comparison=NO_INPUT, configuration=None),
            "ready",
            "ready, as far as checked: configuration and comparison were not checked",
        ),
        (host(is_image=True), "ready", "ready, as far as checked: nft of the host was not checked"),
        (
            ready_except(comparison=NO_INPUT, cluster=NO_INPUT, configuration=None),
            "ready",
            "ready, as far as checked: 4 points were not checked",
        ),
        (
            replace(in_mode(Mode.IPVS), comparison=NO_INPUT),
            "ready",
            "ready, with 1 warning, as far as checked: comparison was not checked",
        ),
        (in_mode(Mode.IPVS), "ready", "ready, with 1 warning"),
        (
            ready_except(cluster=replace(WITHOUT_NODE, node_problems=("no Node",))),
            "ready",
            "ready, with 1 warning, as far as checked: node was not checked",
        ),
        (in_mode(Mode.IPTABLES, Mode.IPVS), "ready", "ready, with 2 warnings"),
        (host(unsupported="no nat"), "not ready", "not ready: 1 problem, in kernel"),
        (with_findings(), "not ready", "not ready: 2 problems, in conntrack and comparison"),
        (
            replace(with_findings(), configuration=ConfigurationFacts("config.conf", errors=("wrong",))),
            "not ready",
            "not ready: 3 problems, the first in configuration",
        ),
    ],
)
def test_verdict_is_that_of_the_worst_finding(facts: Facts, verdict: str, summary: str) -> None:
    found = check(facts)
    assert (found.verdict, found.summary) == (verdict, summary)


@pytest.mark.parametrize(
    ("name", "facts", "state", "words"),
    [
        ("kernel", host(kernel="5.15.0-91-generic"), "warning", "tested with 6.1 and newer"),
        ("kernel", host(kernel="6.1.0-28-amd64"), "ok", "has the features"),
        ("kernel", host(unsupported="the kernel does not support fib: …"), "problem", "does not support fib"),
        ("kernel", host(unsupported=NOT_READ), "not checked", "features of Linux 6.12.9-amd64: the kernel refused"),
        ("libnftables", host(unsupported=NOT_READ), "ok", "works"),
        ("libnftables", host(libnftables=NOT_READ, unsupported=NOT_READ), "problem", "the kernel refused"),
        ("kernel", host(libnftables=NOT_READ), "not checked", "libnftables cannot be used"),
        ("libnftables", host(libnftables=NOT_READ), "problem", "the kernel refused"),
        (
            "libnftables",
            host(libnftables=NOT_READ, unsupported="sets made by a newer libnftables, in ip a (b)"),
            "problem",
            "in ip a (b)",
        ),
        ("libnftables", host(libnftables="1.0.2"), "problem", "1.0.2 is older than 1.0.6"),
        ("libnftables", host(libnftables="1.0.6"), "ok", "1.0.6 works"),
        ("nft of the host", host(nft_version=None), "ok", "no nft"),
        ("nft of the host", host(is_image=True), "not checked", "and not the host's"),
        ("nft of the host", host(nft_version="nftables v1.0.6 (L #5)"), "warning", "is older than knft's libnftables"),
        ("nft of the host", host(libnftables="1.0.6"), "warning", "is newer than knft's libnftables 1.0.6"),
        ("nft of the host", host(nft_version="odd"), "not checked", "nft reports no version: odd"),
        ("nft of the host", host(nft_version=NOT_READ), "not checked", "the kernel refused"),
        ("nft of the host", host(libnftables=NOT_READ), "not checked", "is unknown"),
        ("base chains", rules(base_chains=NOT_READ), "not checked", "the kernel refused"),
        (
            "base chains",
            rules(base_chains=(chain("a", "nat", "prerouting", -101),)),
            "warning",
            "inet firewall a (type nat, hook prerouting, priority -101) has the hook and priority of knft's chain",
        ),
        (
            "base chains",
            rules(base_chains=(chain("a", "nat", "output", -150),)),
            "warning",
            "runs before knft's chain at priority -101; knft does not change packets that this chain translates",
        ),
        (
            "base chains",
            rules(base_chains=(chain("a", "nat", "postrouting", 99),)),
            "warning",
            "knft does not change packets that this chain masquerades",
        ),
        ("base chains", rules(base_chains=(chain("a", "nat", "prerouting", -100),)), "ok", "before inet firewall a"),
        ("base chains", rules(base_chains=(chain("a", "nat", "input", -200),)), "ok", "no base chain"),
        ("base chains", rules(base_chains=(chain("a", "filter", "forward", 0),)), "ok", "the order does not matter"),
        ("base chains", rules(base_chains=(chain("a", "filter", "forward", 10),)), "ok", "no base chain"),
        (
            "base chains",
            rules(base_chains=(chain("a", "nat", "output", -150, table="knft", family="ip"),)),
            "ok",
            "no base chain",
        ),
        (
            "base chains",
            rules(base_chains=(chain("nat-output", "nat", "output", -100, table="kube-proxy", family="ip6"),)),
            "ok",
            "no base chain",
        ),
        ("kube-proxy", rules(errors=("iptables-save failed",)), "not checked", "iptables-save failed"),
        ("kube-proxy", rules(saved={}), "not checked", "iptables is not installed"),
        ("kube-proxy", in_mode(Mode.NFTABLES), "ok", "rules of mode nftables: 20 chains"),
        ("kube-proxy", in_mode(Mode.IPVS), "warning", "connections through IPVS end"),
        ("kube-proxy", in_mode(Mode.IPTABLES, Mode.NFTABLES), "warning", "modes iptables and nftables are in force"),
        (
            "kube-proxy",
            rules(saved=saved("-A KUBE-FORWARD -j ACCEPT", table="filter", policies=":FORWARD DROP [0:0]")),
            "warning",
            "KUBE-FORWARD accepts forwarded packets of Services",
        ),
        (
            "kube-proxy",
            rules(saved=saved("-A KUBE-NODEPORTS -j ACCEPT", table="filter", policies=":INPUT DROP [0:0]")),
            "warning",
            "KUBE-NODEPORTS accepts packets to health check node ports",
        ),
        ("kube-proxy", rules(saved=saved(table="filter", policies=":FORWARD DROP [0:0]")), "ok", "has no rules"),
        ("kube-proxy", rules(saved=saved("-A KUBE-FORWARD -j ACCEPT", table="filter")), "ok", "has no rules"),
        (
            "kube-proxy",
            rules(saved=saved(policies="# Table `raw' is incompatible, use 'nft' tool.")),
            "not checked",
            "table raw of iptables-nft has rules that only nft can show",
        ),
        ("configuration", ready_except(configuration=None), "not checked", "no configuration file"),
        ("configuration", ready_except(configuration=ConfigurationFacts("f", ("f: mode",))), "problem", "f: mode"),
        (
            "configuration",
            ready_except(configuration=ConfigurationFacts("f", warnings=("f: ipvs.scheduler: …",))),
            "warning",
            "f: ipvs.scheduler: …",
        ),
        ("conntrack", ready_except(conntrack=ConntrackFacts(None, None)), "not checked", "does not tell"),
        ("conntrack", ready_except(conntrack=ConntrackFacts(89, 100)), "ok", "89 of 100 entries"),
        ("conntrack", ready_except(conntrack=ConntrackFacts(90, 100)), "warning", "90 of 100 entries"),
        ("conntrack", ready_except(conntrack=ConntrackFacts(100, 100)), "problem", "the kernel drops packets"),
        ("conntrack", ready_except(conntrack=ConntrackFacts(5, 0)), "ok", "5 of 0"),
        ("packet mark", rules(saved={}), "not checked", "not all rules of iptables were read"),
        ("packet mark", rules(errors=("iptables-save failed",)), "not checked", "not all rules of iptables were read"),
        ("packet mark", rules(mark_routes=NOT_READ), "not checked", "the kernel refused"),
        ("packet mark", rules(foreign_tables=NOT_READ), "not checked", "tables of other programs: the kernel refused"),
        ("packet mark", in_nftables(NOT_READ), "not checked", "other programs (inet mine): the kernel refused"),
        ("packet mark", in_nftables((MarkUse("inet mine", "c", 0x8000, "…"),)), "ok", "no rule that was read"),
        (
            "packet mark",
            in_nftables((MarkUse("inet mine", "c", 0xC000, "meta mark & 0x0000c000 != 0"),)),
            "warning",
            "(0x4000), too: nftables, table inet mine, chain c: meta mark & 0x0000c000 != 0",
        ),
        (
            "packet mark",
            in_nftables((MarkUse("inet mine", "c", None, "add @marks { meta mark }"),)),
            "not checked",
            "which bits of the packet mark these rules use: nftables, table inet mine, chain c: add @marks { meta mark",
        ),
        ("packet mark", rules(mark_routes=(MarkRoute(Family.IPV6, 9, 0x4000, 0xC000),)), "warning", "ip rule 9 (IPv6"),
        ("packet mark", rules(mark_routes=(MarkRoute(Family.IPV4, 9, 0x1, 0xFFFFFFFF),)), "ok", "no rule"),
        ("packet mark", marked("-A PREROUTING -j MARK --set-xmark 0x1/0x1"), "ok", "no rule"),
        ("packet mark", marked("-A PREROUTING -j MARK --set-xmark 0x1/0xffffffff"), "warning", "-A PREROUTING -j MARK"),
        ("packet mark", marked("-A X -j CONNMARK --restore-mark --nfmask 0x80 --ctmask 0x80"), "ok", "no rule"),
        ("packet mark", marked("-A X -j CONNMARK --restore-mark"), "warning", "--restore-mark"),
        ("packet mark", marked("-A X -j CONNMARK --save-mark --nfmask 0xf0 --ctmask 0xf0"), "ok", "no rule"),
        ("packet mark", marked("-A X -j CONNMARK --save-mark"), "warning", "--save-mark"),
        ("packet mark", marked("-A X -j MARK --set-xmark 0x4000/0x0"), "warning", "0x4000/0x0"),
        ("packet mark", marked("-A X -j HMARK --hmark-tuple src --hmark-mod 10"), "warning", "HMARK"),
        ("packet mark", marked("-A X -m mark ! --mark 0x4000/0xf000 -j DROP"), "warning", "! --mark 0x4000/0xf000"),
        ("packet mark", marked("-A X -m mark --mark 0x8000/0x8000 -j DROP"), "ok", "no rule"),
        ("packet mark", marked(f"{TPROXY} --tproxy-mark 0x4000/0x4000"), "warning", "--tproxy-mark 0x4000/0x4000"),
        ("packet mark", marked(f"{TPROXY} --tproxy-mark 0x1/0x1"), "ok", "no rule"),
        ("packet mark", marked(f"{TPROXY} --tproxy-mark 0x1/0xffffffff"), "warning", "--tproxy-mark 0x1/0xffffffff"),
        ("packet mark", marked("-A X -p tcp -m socket --transparent --restore-skmark -j ACCEPT"), "warning", "skmark"),
        ("packet mark", marked("-A X -p tcp -m socket --transparent -j ACCEPT"), "ok", "no rule"),
        ("packet mark", marked("-A X -j SET --map-set marks src --map-mark"), "warning", "--map-mark"),
        ("packet mark", marked("-A X -j SET --map-set marks src --map-prio"), "ok", "no rule"),
        ("packet mark", ready_except(config=replace(ready().config, masquerade_bit=15)), "warning", "with 0x4000, and"),
        ("node", ready_except(cluster=NO_INPUT), "not checked", "no objects were given"),
        ("node", ready_except(cluster=NOT_READ), "not checked", "the kernel refused"),
        ("node", ready_except(cluster=replace(objects(), node_problems=("no Node",))), "warning", "no Node"),
        ("node", ready_except(cluster=WITHOUT_NODE), "not checked", "the objects have no Node 'node-1', so the comp"),
        ("comparison", with_comparison(NO_INPUT), "not checked", "no objects were given"),
        ("comparison", with_comparison(NOT_READ), "not checked", "the kernel refused"),
        ("comparison", with_comparison(compared(DIFFERENT, ELSEWHERE)), "problem", "packets to 1 Service (shop/web)"),
        ("comparison", with_comparison(compared(ELSEWHERE)), "problem", "3 kinds of packets to no Service"),
        ("comparison", with_comparison(compared(UNDECIDED)), "warning", "(shop/web) reach rules that knft cannot"),
        ("comparison", with_comparison(compared(EXPECTED)), "ok", "4 kinds of packets differ as expected"),
        ("comparison", with_comparison(compared(LOSING)), "warning", "would no longer reach a Service: packets to"),
        ("comparison", with_comparison(compared(LOSING)), "warning", "(shop/web); reasons: NodePorts on loopback"),
        (
            "comparison",
            with_comparison(compared()),
            "ok",
            "packets have the same outcomes with the rules in the kernel and with those that knft would write",
        ),
        ("comparison", with_comparison(compared(has_frontends=False)), "not checked", "neither side has a Service"),
        ("comparison", with_comparison(compared(warnings=("a rule drops …",))), "warning", "a rule drops …"),
        ("connections", ready_except(cluster=NO_INPUT), "not checked", "no objects were given"),
        ("connections", ready_except(cluster=replace(objects(), connections=NOT_READ)), "not checked", "refused"),
        ("connections", with_connection("UDP", "10.96.0.53", 53, "10.244.1.20", 53), "ok", "(1 checked)"),
        ("connections", with_connection("UDP", "10.96.0.53", 53, "10.244.1.21", 53), "warning", "10.244.1.21:53, "),
        ("connections", with_connection("UDP", "10.96.0.53", 53, "10.96.0.53", 53), "warning", "knft deletes the"),
        ("connections", with_connection("TCP", "10.96.0.10", 80, "10.244.9.9", 80), "warning", "open connections keep"),
        ("connections", with_connection("TCP", "10.96.0.10", 80, "10.244.1.11", 8080), "ok", "(1 checked)"),
        ("connections", with_connection("TCP", "10.96.0.10", 80, "10.96.0.10", 80), "ok", "(1 checked)"),
        ("connections", with_connection("TCP", "203.0.113.9", 80, "10.244.9.9", 80), "warning", "shop/web:http"),
        ("connections", with_connection("TCP", "192.0.2.11", 30080, "10.244.9.9", 80), "warning", "shop/web:http"),
        ("connections", with_connection("TCP", "192.0.2.12", 30080, "10.244.9.9", 80), "ok", "(1 checked)"),
        ("connections", with_connection("TCP", "192.0.2.12", 30080, "10.244.1.10", 8080), "warning", "at 192.0.2.12"),
        ("connections", with_connection("UDP", "192.0.2.12", 30080, "10.244.1.10", 8080), "ok", "(1 checked)"),
        ("connections", with_connection("TCP", "127.0.0.1", 30080, "10.244.1.10", 8080), "warning", "at 127.0.0.1, "),
        ("connections", on_loopback("TCP"), "ok", "(1 checked)"),
        ("connections", direct_connection(), "ok", "(1 checked)"),
        ("connections", with_connection("TCP", "192.0.2.12", 30080, "192.0.2.12", 30080), "ok", "(1 checked)"),
        ("connections", with_connection("UDP", "10.96.0.10", 80, "10.244.9.9", 80), "ok", "(1 checked)"),
    ],
)  # fmt: skip
def test_finding(name: str, facts: Facts, state: State, words: str) -> None:
    """The worst finding of the point has the state and words, and each that is not ok has a remedy."""
    found = findings(facts, name)
    assert found[0].state == state
    assert words in found[0].text
    assert all(finding.remedy for finding in found if finding.state != "ok")


def test_remedies_name_commands_with_the_values_that_were_found() -> None:
    assert findings(with_comparison(compared(DIFFERENT)), "comparison")[0].remedy == f"`{DIFF}` prints the differences"
    (mark, *_) = findings(marked("-A X -j MARK --set-xmark 0xf0000000/0xf0000000", "-A X -j CONNMARK --restore-mark"),
                          "packet mark")  # fmt: skip
    assert "another bit, for example 27, " in mark.remedy
    unclear = MarkUse("inet mine", "a; reboot", None, "…")
    (unknown, _) = findings(in_nftables((unclear,)), "packet mark")
    command = "nft list chain inet mine 'a; reboot'"
    assert unknown.remedy == f"look for bit 14 of the packet mark (0x4000) in `{command}`"
    odd = chain("a; reboot", "nat", "output", -150)
    (name,) = findings(rules(base_chains=(odd,)), "base chains")
    assert "`nft list chain inet firewall 'a; reboot'`" in name.remedy
    (mode,) = findings(in_mode(Mode.NFTABLES), "kube-proxy")
    assert mode.remedy == "remove them after the switch with `knft cleanup --kube-proxy nftables`"


def test_knft_that_already_runs_is_named() -> None:
    _, knft = findings(rules(knft_tables=("ip knft", "ip6 knft")), "kube-proxy")
    assert knft == Finding(
        "ok", "knft already runs here, or has run: the kernel has ip knft and ip6 knft", "`knft status` tells which"
    )
    unread, _ = findings(rules(knft_tables=NOT_READ), "kube-proxy")
    assert (unread.state, unread.text) == ("not checked", "tables of knft: the kernel refused")


def test_missing_cluster_cidr_is_the_likely_cause_of_differences() -> None:
    without_file = replace(with_comparison(compared(DIFFERENT)), configuration=None)
    (found,) = findings(without_file, "comparison")
    assert found.remedy == (
        "the likely cause is that no --cluster-cidr is given, so packets from pods count as packets from outside: give "
        f"the value of kube-proxy's clusterCIDR, or its configuration file with --config; `{DIFF}` prints the "
        "differences"
    )
    for config in (
        replace(without_file.config, cluster_cidrs=("10.244.0.0/16",)),
        replace(without_file.config, detect_local_mode="NodeCIDR"),
    ):
        (found,) = findings(replace(without_file, config=config), "comparison")
        assert found.remedy == f"`{DIFF}` prints the differences"


def test_contested_frontends_are_a_warning_also_if_the_comparison_is_equal_or_missing() -> None:
    cluster = objects()
    known = cluster.objects[Family.IPV4]
    api, admin = ServicePortName("shop", "api", "http", "TCP"), ServicePortName("shop", "web", "admin", "TCP")
    address = known.ports[WEB].external_ips
    ports = {
        **known.ports,
        api: ServicePort("10.96.0.11", 80, "TCP", external_ips=address),
        admin: ServicePort("10.96.0.10", 81, "TCP", node_port=30080),
    }
    contested = replace(cluster, objects={**cluster.objects, Family.IPV4: replace(known, ports=ports)})
    for comparison, other in ((compared(), "ok"), (NOT_READ, "not checked")):
        found = findings(ready_except(cluster=contested, comparison=comparison), "comparison")
        assert [finding.state for finding in found] == ["warning", other]
        assert found[0].text == (
            "contested: shop/api:http and shop/web:http claim 203.0.113.9:80/tcp; kube-proxy's choice is not stable, "
            "knft gives it to shop/api:http"
        )


def test_sysctls_that_knft_changes_are_named() -> None:
    values = (
        DifferingValue("proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal", "0", 1),
        DifferingValue("sys/module/nf_conntrack/parameters/hashsize", "", 65536),
    )
    _, liberal, buckets = findings(ready_except(conntrack=replace(CONNTRACK, differing=values)), "conntrack")
    assert "`knft run` will change net.netfilter.nf_conntrack_tcp_be_liberal from 0 to 1 when" in liberal.text
    assert "will change sys/module/nf_conntrack/parameters/hashsize from an unknown value to 65536" in buckets.text


def test_many_findings_are_counted() -> None:
    groups = [DifferenceGroup("endpoints", f"shop/web-{number}:http", None, "", classes=1) for number in range(9)]
    (found,) = findings(with_comparison(compared(*groups)), "comparison")
    assert found.text.startswith(
        "packets to 9 Services (shop/web-0, shop/web-1, shop/web-2, shop/web-3, shop/web-4 and 4 "
    )
    (marks,) = findings(marked(*(f"-A X{number} -j CONNMARK --restore-mark" for number in range(4))), "packet mark")
    assert marks.text.endswith(" and 1 more rule")
    chains = tuple(chain(f"c{number}", "filter", "input", 0) for number in range(9))
    (beside,) = findings(rules(base_chains=chains), "base chains")
    assert " and 3 more; the order" in beside.text
    targets = [connection("UDP", "10.96.0.53", 53, f"10.244.9.{number}", 53) for number in range(5)]
    (several,) = findings(ready_except(cluster=objects(*targets)), "connections")
    assert (
        "5 UDP connections to shop/dns: the destination is 10.244.9.0:53, 10.244.9.1:53, 10.244.9.2:53 and 2 more"
        in (several.text)
    )
