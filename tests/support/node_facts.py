"""Facts of a node that is ready, and of one with a finding of every kind."""

from typing import Any

from msgspec.structs import replace

from knft.config import Config
from knft.decide.stale_flows import packed_socket
from knft.explain.cluster import FamilyObjects
from knft.families import Family
from knft.interpret.compare.findings import Counts
from knft.interpret.compare.report import DifferenceGroup, FamilyReport, Report
from knft.kernel.base_chains import BaseChain
from knft.kernel.connections import Connection
from knft.kernel.mark_routes import MarkRoute
from knft.kernel.sysctls import DifferingValue
from knft.leftovers.saved import SavedRules, parse_saved
from knft.model.endpoint import Endpoint
from knft.model.names import ServicePortName
from knft.model.node import NodeView
from knft.model.service_port import ServicePort
from knft.preflight.facts import (
    ConfigurationFacts,
    ConntrackFacts,
    Facts,
    HostFacts,
    MarkUse,
    ObjectFacts,
    RuleFacts,
    Unread,
)
from knft.proxy_mode import Mode

DIFF = "knft diff --live -f objects.yaml --node node-1"
WEB = ServicePortName("shop", "web", "http", "TCP")
DNS = ServicePortName("shop", "dns", "", "UDP")
NOT_READ = Unread("the kernel refused")

KUBE_PROXY_RULES = """
*nat
:PREROUTING ACCEPT [0:0]
:KUBE-MARK-MASQ - [0:0]
:KUBE-POSTROUTING - [0:0]
-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
COMMIT
"""


def saved(*rules: str, table: str = "mangle", policies: str = "") -> dict[str, SavedRules]:
    """Return rules of a backend, together with those of kube-proxy; ``policies`` are lines about built-in chains."""
    text = "".join(f"{line}\n" for line in (f"*{table}", *filter(None, policies.split("\n")), *rules, "COMMIT"))
    return {"iptables-nft": parse_saved(KUBE_PROXY_RULES + text)}


HOST = HostFacts("6.12.9-amd64", "", "1.1.3", "nftables v1.1.3 (Commodore Bullmoose #4)")
RULES = RuleFacts((), saved(), dict.fromkeys(Mode, ()), (), (), {})
CONNTRACK = ConntrackFacts(100, 262144)


def compared(*groups: DifferenceGroup, warnings: tuple[str, ...] = (), has_frontends: bool = True) -> Report:
    """Return the report of a comparison with these differences."""
    counts = Counts()
    for group in groups:
        if group.cause == "undecided":
            counts.undecided += group.classes
        elif group.reason is None:
            counts.different += group.classes
        else:
            counts.expected += group.classes
    counts.equal = 40
    family = FamilyReport("IPv4", counts, list(groups), has_frontends=has_frontends)
    return Report("kube-proxy on this machine (iptables-nft)", "knft", [family], warnings=list(warnings))


def objects(*connections: Connection) -> ObjectFacts:
    """Return a cluster with a TCP and a UDP Service, and these connections."""
    service_ports = {
        WEB: ServicePort("10.96.0.10", 80, "TCP", node_port=30080, external_ips=("203.0.113.9",)),
        DNS: ServicePort("10.96.0.53", 53, "UDP"),
    }
    endpoints = {
        WEB: (Endpoint.at("10.244.1.10", 8080), Endpoint.at("10.244.1.11", 8080, ready=False, serving=False)),
        DNS: (Endpoint.at("10.244.1.20", 53), Endpoint.at("10.244.1.21", 53, ready=False, serving=False)),
    }
    empty = FamilyObjects(NodeView(Family.IPV6, "node-1"), {}, {})
    return ObjectFacts(
        {Family.IPV4: FamilyObjects(NodeView(Family.IPV4, "node-1"), service_ports, endpoints), Family.IPV6: empty},
        {Family.IPV4: ("192.0.2.11",), Family.IPV6: ()},
        {Family.IPV4: connections, Family.IPV6: ()},
    )


def ready() -> Facts:
    """Return the facts of a node without any finding that is not ok."""
    configuration = ConfigurationFacts("config.conf")
    return Facts(Config("node-1"), HOST, RULES, configuration, CONNTRACK, compared(), objects(), DIFF)


def ready_except(**changes: Any) -> Facts:
    """Return the facts of a node that is ready, with changes."""
    return replace(ready(), **changes)


def chain(
    name: str, kind: str, hook: str, priority: int, *, table: str = "firewall", family: str = "inet"
) -> BaseChain:
    """Return a base chain."""
    return BaseChain(family, table, name, kind, hook, priority)


def with_findings() -> Facts:
    """Return the facts of a node with a finding of every state."""
    rules = RuleFacts(
        (chain("early", "nat", "prerouting", -101), chain("INPUT", "filter", "input", 0, table="filter", family="ip")),
        saved(
            "-A KUBE-FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT",
            "-A FORWARD -j MARK --set-xmark 0x1/0xffffffff",
            table="filter",
            policies=":FORWARD DROP [0:0]\n:KUBE-FORWARD - [0:0]",
        ),
        {Mode.IPTABLES: ("20 chains in iptables-nft",), Mode.IPVS: (), Mode.NFTABLES: ("ip kube-proxy",)},
        ("ip6tables-legacy-save: Permission denied",),
        (MarkRoute(Family.IPV4, 100, 0x4000, 0x4000),),
        {
            "inet firewall": (
                MarkUse("inet firewall", "early", 0x4000, "meta mark set meta mark | 0x00004000"),
                MarkUse("inet firewall", "early", None, "add @marks { meta mark }"),
            ),
            "inet docker": None,
            "ip other": Unread("cannot list table ip other: Operation not permitted"),
        },
    )
    group = DifferenceGroup("endpoints", "shop/web:http", None, "other endpoints", classes=2)
    return Facts(
        Config("node-1"),
        replace(HOST, nft_version="nftables v1.0.6 (Lester Gooch #5)"),
        rules,
        ConfigurationFacts("config.conf", warnings=("config.conf: nodePortAddresses: not set, so NodePorts are …",)),
        ConntrackFacts(262144, 262144, (DifferingValue("proc/sys/net/netfilter/nf_conntrack_max", "262144", 524288),)),
        compared(group, warnings=("a rule of another program drops packets to shop/web on both sides: …",)),
        objects(connection("UDP", "10.96.0.53", 53, "10.244.9.9", 53)),
        DIFF,
    )


def connection(protocol: Any, address: str, port: int, endpoint: str, endpoint_port: int) -> Connection:
    """Return a conntrack entry to a frontend that leads to an endpoint."""
    return Connection(protocol, packed_socket(address, port), packed_socket(endpoint, endpoint_port))
