"""The edits of iptables mode remove kube-proxy's own rules, and keep similar rules of others."""

import pytest

from knft.interpret.compare.expected_differences import iptables_edits
from knft.interpret.iptables import read
from knft.interpret.rules import RuleSet

EDITS = (
    iptables_edits.remove_localnet_drop,
    iptables_edits.remove_invalid_drop,
    iptables_edits.remove_forward_accepts,
    iptables_edits.remove_health_check_ports,
)
ESTABLISHED = "-m conntrack --ctstate RELATED,ESTABLISHED"
HEALTH = '-m comment --comment "shop/web:http health check node port"'
TO_LOOPBACK, NOT_FROM_LOOPBACK = "-d 127.0.0.0/8", "! -s 127.0.0.0/8"
NOT_ESTABLISHED = "-m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT"

KUBE_PROXY_RULES = (
    "KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP",
    "KUBE-FORWARD -m conntrack --ctstate INVALID -m nfacct --nfacct-name ct_state_invalid_dropped_pkts -j DROP",
    'KUBE-FORWARD -m comment --comment "kubernetes forwarding rules" -m mark --mark 0x4000/0x4000 -j ACCEPT',
    f"KUBE-FORWARD {ESTABLISHED} -j ACCEPT",
    f"KUBE-NODEPORTS -p tcp {HEALTH} -m tcp --dport 31012 -j ACCEPT",
    f"KUBE-FIREWALL {NOT_FROM_LOOPBACK} {TO_LOOPBACK} {NOT_ESTABLISHED} -j DROP",
    f"KUBE-FIREWALL {TO_LOOPBACK} {NOT_FROM_LOOPBACK} {NOT_ESTABLISHED} -j DROP",
)
SIMILAR_RULES = (
    "KUBE-FORWARD -s 10.0.0.1/32 -m conntrack --ctstate INVALID -j DROP",
    "KUBE-FORWARD -m conntrack --ctstate INVALID,NEW -j DROP",
    "KUBE-FORWARD -m conntrack --ctstate INVALID -j ACCEPT",
    "KUBE-FORWARD -j ACCEPT",
    "KUBE-FORWARD -s 10.0.0.1/32 -j ACCEPT",
    "KUBE-FORWARD -m mark ! --mark 0x4000/0x4000 -j ACCEPT",
    "KUBE-FORWARD -s 10.0.0.1/32 -m mark --mark 0x4000/0x4000 -j ACCEPT",
    f"KUBE-FORWARD -i eth0 {ESTABLISHED} -j ACCEPT",
    "KUBE-FORWARD -m conntrack --ctstate ESTABLISHED -j ACCEPT",
    "KUBE-FORWARD -m conntrack ! --ctstate RELATED,ESTABLISHED -j ACCEPT",
    "KUBE-NODEPORTS -p tcp -m tcp --dport 31012 -j ACCEPT",
    f"KUBE-NODEPORTS -p udp {HEALTH} -m udp --dport 31012 -j ACCEPT",
    f"KUBE-NODEPORTS -p tcp {HEALTH} -m tcp --dport 31012:31013 -j ACCEPT",
    f"KUBE-NODEPORTS -p tcp {HEALTH} -j ACCEPT",
    f"KUBE-NODEPORTS -s 10.0.0.1/32 -p tcp {HEALTH} -m tcp --dport 31012 -j ACCEPT",
    f"KUBE-FIREWALL {TO_LOOPBACK} {NOT_ESTABLISHED} -j DROP",
    f"KUBE-FIREWALL {TO_LOOPBACK} {NOT_FROM_LOOPBACK} -j DROP",
    f"KUBE-FIREWALL {TO_LOOPBACK} {NOT_FROM_LOOPBACK} {NOT_ESTABLISHED} -i eth0 -j DROP",
    f"KUBE-FIREWALL -d 127.0.0.1/32 {NOT_FROM_LOOPBACK} {NOT_ESTABLISHED} -j DROP",
    f"KUBE-FIREWALL {NOT_FROM_LOOPBACK} {NOT_ESTABLISHED} -j DROP",
)


def _remaining(rule: str) -> int:
    chain = rule.partition(" ")[0]
    rules: RuleSet = read(f"*filter\n:{chain} - [0:0]\n-A {rule}\nCOMMIT\n", 4)
    for change in EDITS:
        rules = change(rules, rules)
    return len(rules.chains[f"filter {chain}"].rules)


@pytest.mark.parametrize("rule", KUBE_PROXY_RULES)
def test_rules_of_kube_proxy_are_removed(rule: str) -> None:
    assert _remaining(rule) == 0


@pytest.mark.parametrize("rule", SIMILAR_RULES)
def test_similar_rules_are_kept(rule: str) -> None:
    assert _remaining(rule) == 1
