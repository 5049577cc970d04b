"""Plans for the removal of kube-proxy's leftovers, on text: chains, ipsets, and virtual servers."""

import pytest

from knft.leftovers.chains import plan_chains
from knft.leftovers.messages import leftover_warning
from knft.leftovers.names import SETS, modes_of_chain
from knft.leftovers.saved import parse_saved
from knft.leftovers.servers import ServerAddress, parse_servers, plan_servers
from knft.leftovers.sets import plan_sets
from knft.proxy_mode import Mode
from tests.support.leftovers import FAMILIES, IPV4, SET_TYPES, service_hash, set_name


def test_service_hashes_are_those_of_kube_proxy() -> None:
    """Known hashes of kube-proxy (docs/behaviour/iptables.md#chain-names); the leftovers of these tests use them."""
    assert service_hash("ns1/svc1:p80tcp") == "XPGD46QRK7WJZT7O"
    assert service_hash("ns1/svc1:p80tcp10.180.0.1:80") == "SXIVWICOYRO3J4NJ"


@pytest.mark.parametrize(
    ("table", "chain", "owners"),
    [
        ("nat", "KUBE-SERVICES", {Mode.IPTABLES, Mode.IPVS}),
        ("filter", "KUBE-SERVICES", {Mode.IPTABLES}),
        ("raw", "KUBE-SERVICES", set()),
        ("nat", "KUBE-SVC-XPGD46QRK7WJZT7O", {Mode.IPTABLES}),
        ("nat", "KUBE-SVL-XPGD46QRK7WJZT7O", {Mode.IPTABLES}),
        ("nat", "KUBE-SEP-XPGD46QRK7WJZT7O", {Mode.IPTABLES}),
        ("nat", "KUBE-EXT-XPGD46QRK7WJZT7O", {Mode.IPTABLES}),
        ("nat", "KUBE-FW-XPGD46QRK7WJZT7O", {Mode.IPTABLES}),
        ("filter", "KUBE-SVC-XPGD46QRK7WJZT7O", set()),
        ("nat", "KUBE-LOAD-BALANCER", {Mode.IPVS}),
        ("filter", "KUBE-IPVS-OUT-FILTER", {Mode.IPVS}),
        ("mangle", "KUBE-PROXY-CANARY", {Mode.IPTABLES}),
        ("mangle", "KUBE-KUBELET-CANARY", set()),
        ("filter", "KUBE-FIREWALL", set()),
        ("nat", "KUBE-FIREWALL", set()),
        ("nat", "KUBE-MARK-DROP", set()),
        ("nat", "KUBE-SVCX", set()),
        ("nat", "MY-KUBE-SVC-1", set()),
    ],
)
def test_chain_owners_depend_on_table_and_name(table: str, chain: str, owners: set[Mode]) -> None:
    assert modes_of_chain(table, chain) == owners


def test_sets_have_a_name_per_family_cut_at_31_characters() -> None:
    """They are those of docs/behaviour/ipvs.md#ipsets, and no others."""
    assert {set_name(family, name) for family in FAMILIES for name in SET_TYPES} == SETS
    assert "KUBE-6-LOAD-BALANCER-SOURCE-CID" in SETS
    assert len(SETS) == 34


def test_foreign_sets_and_sets_in_use_stay() -> None:
    plan = plan_sets("MINE\nKUBE-CLUSTER-IP\nKUBE-6-LOOP-BACK\nKUBE-MINE\nKUBE-IPVS-IPS\n", {"KUBE-IPVS-IPS"})
    assert (plan.destroy, plan.keep) == (("KUBE-CLUSTER-IP", "KUBE-6-LOOP-BACK"), ("KUBE-IPVS-IPS",))


@pytest.mark.parametrize(
    ("text", "target", "sets"),
    [
        ("-p tcp -j KUBE-SERVICES", "KUBE-SERVICES", set()),
        ("-g KUBE-SERVICES", "KUBE-SERVICES", set()),
        ('-m comment --comment "to -j KUBE-SERVICES" -j ACCEPT', "ACCEPT", set()),
        ('-m comment --comment "a \\" -j KUBE-SERVICES" -j DROP', "DROP", set()),
        ("-m comment --comment -j -j DROP", "DROP", set()),
        ('-m comment --comment "counts"', None, set()),
        ("-m set ! --match-set KUBE-CLUSTER-IP src,dst -j RETURN", "RETURN", {"KUBE-CLUSTER-IP"}),
        ("-j SET --add-set MINE src", "SET", {"MINE"}),
        ('-j LOG --log-prefix "-j KUBE-SERVICES "', "LOG", set()),
    ],
)
def test_free_text_of_a_rule_is_not_parsed_as_options(text: str, target: str | None, sets: set[str]) -> None:
    """Comments and log prefixes may contain text that looks like a jump."""
    (table,) = parse_saved(f"*nat\n:INPUT ACCEPT [0:0]\n-A INPUT {text}\nCOMMIT\n").tables
    (rule,) = table.rules
    assert (rule.chain, rule.text, rule.target, set(rule.sets)) == ("INPUT", text, target, sets)


def test_tables_that_iptables_save_cannot_print_are_listed() -> None:
    text = "# Table `nat' is incompatible, use 'nft' tool.\n*filter\n:INPUT ACCEPT [0:0]\nCOMMIT\n"
    saved = parse_saved(text)
    assert saved.unreadable_tables == ("nat",)
    assert [table.name for table in saved.tables] == ["filter"]


def test_restore_input_deletes_only_kube_proxys_chains_and_jumps() -> None:
    """It flushes chains, deletes jumps exactly as they were printed, and then deletes the chains."""
    saved = parse_saved(
        "*nat\n:PREROUTING ACCEPT [5:300]\n:KUBE-SERVICES - [0:0]\n:KUBE-MARK-MASQ - [0:0]\n:CNI-1 - [0:0]\n"
        '-A PREROUTING -m comment --comment "a changed comment" -j KUBE-SERVICES\n'
        "-A PREROUTING -j CNI-1\n-A KUBE-SERVICES -j KUBE-MARK-MASQ\n-A CNI-1 -j RETURN\nCOMMIT\n"
        "*filter\n:INPUT DROP [0:0]\n-A INPUT -j ACCEPT\nCOMMIT\n"
    )
    plan = plan_chains(saved, {Mode.IPTABLES})
    assert plan.restore_input == (
        "*nat\n:KUBE-SERVICES - [0:0]\n:KUBE-MARK-MASQ - [0:0]\n"
        '-D PREROUTING -m comment --comment "a changed comment" -j KUBE-SERVICES\n'
        "-X KUBE-SERVICES\n-X KUBE-MARK-MASQ\nCOMMIT\n"
    )
    assert (plan.chain_count, plan.rule_count, plan.chains_in_use) == (2, 1, ())
    assert plan_chains(saved, {Mode.IPVS}).restore_input == ""


def test_targets_of_a_pinned_chain_stay_too() -> None:
    saved = parse_saved(
        "*nat\n:OUTPUT ACCEPT [0:0]\n:KUBE-SERVICES - [0:0]\n:KUBE-SVC-A - [0:0]\n:KUBE-SEP-A - [0:0]\n"
        ":KUBE-MARK-MASQ - [0:0]\n:KUBE-POSTROUTING - [0:0]\n:MINE - [0:0]\n"
        "-A OUTPUT -j KUBE-SVC-A\n-A KUBE-SERVICES -j KUBE-SVC-A\n-A KUBE-SVC-A -j KUBE-SEP-A\n"
        "-A KUBE-SEP-A -j KUBE-MARK-MASQ\n-A MINE -g KUBE-SVC-A\nCOMMIT\n"
    )
    plan = plan_chains(saved, {Mode.IPTABLES, Mode.IPVS})
    assert plan.chains_in_use == ("nat KUBE-SVC-A", "nat KUBE-SEP-A", "nat KUBE-MARK-MASQ")
    assert plan.restore_input == (
        "*nat\n:KUBE-SERVICES - [0:0]\n:KUBE-POSTROUTING - [0:0]\n-D OUTPUT -j KUBE-SVC-A\n"
        "-X KUBE-SERVICES\n-X KUBE-POSTROUTING\nCOMMIT\n"
    )


# The content of /proc/net/ip_vs.
SERVERS = """\
IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port Forward Weight ActiveConn InActConn
TCP  0A60000A:0050 rr persistent 10800 FFFFFFFF
  -> 0AF4010B:1F90      Masq    1      0          0         
UDP  0A600035:0035 rr ops 
TCP  C000020B:7580 rr 
SCTP C000020B:7581 rr 
TCP  CB007109:01BB wlc 
TCP  CB007109:0050 rr 
TCP  [fd00:0010:0096:0000:0000:0000:0000:000a]:0050 rr 
  -> [fd00:0010:0244:0001:0000:0000:0000:000b]:1F90      Masq    1      0          0         
TCP  [2001:0db8:0001:0000:0000:0000:0000:000b]:7580 rr 
FWM  00000001 rr 
"""  # noqa: W291 - the kernel prints these blanks


def test_virtual_servers_are_parsed() -> None:
    assert [str(server) for server in parse_servers(SERVERS)] == [
        "tcp 10.96.0.10:80",
        "udp 10.96.0.53:53",
        "tcp 192.0.2.11:30080",
        "sctp 192.0.2.11:30081",
        "tcp 203.0.113.9:443",
        "tcp 203.0.113.9:80",
        "tcp [fd00:10:96::a]:80",
        "tcp [2001:db8:1::b]:30080",
    ]
    assert parse_servers("") == ()


SET_MEMBERS = {
    "KUBE-LOAD-BALANCER": (
        "create KUBE-LOAD-BALANCER hash:ip,port family inet hashsize 1024 maxelem 65536\n"
        "add KUBE-LOAD-BALANCER 203.0.113.9,tcp:80\n"
    ),
    "KUBE-NODE-PORT-TCP": (
        "create KUBE-NODE-PORT-TCP bitmap:port range 0-65535\nadd KUBE-NODE-PORT-TCP 30080\nadd KUBE-NODE-PORT-TCP 80\n"
    ),
    "KUBE-NODE-PORT-SCTP-HASH": "add KUBE-NODE-PORT-SCTP-HASH 192.0.2.11,sctp:30081\n",
    "KUBE-6-NODE-PORT-TCP": "add KUBE-6-NODE-PORT-TCP 30080\n",
}
LOCAL = ("127.0.0.1", "192.0.2.11", "2001:db8:1::b", "::1")


def test_servers_on_the_device_or_in_sets_are_removed() -> None:
    """They have an address of the device, are in an ipset, or have a NodePort of an ipset and a local address."""
    plan = plan_servers(parse_servers(SERVERS), {"10.96.0.10", "10.96.0.53", "fd00:10:96::a"}, LOCAL, SET_MEMBERS)
    assert list(map(str, plan.keep)) == ["tcp 203.0.113.9:443"]
    assert len(plan.remove) == 7


def test_servers_without_evidence_of_kube_proxy_stay() -> None:
    servers = parse_servers(SERVERS)
    assert plan_servers(servers, (), LOCAL, {}).remove == ()
    node_port = ServerAddress(servers[2].address, "udp", 30080)
    assert plan_servers([node_port], (), LOCAL, SET_MEMBERS).remove == ()
    not_local = servers[2]
    assert plan_servers([not_local], (), (), SET_MEMBERS).remove == ()


def test_warning_names_the_cleanup_command() -> None:
    assert leftover_warning(Mode.IPTABLES, ["12 chains in iptables-nft"]) == (
        "kube-proxy's iptables rules are still in force (12 chains in iptables-nft); packets reach knft's rules first; "
        "remove them with `knft cleanup --kube-proxy iptables`"
    )


def test_plan_for_foreign_rules_is_empty() -> None:
    from tests.support import leftovers

    for family in FAMILIES:
        assert plan_chains(parse_saved(leftovers.foreign_rules(family)), set(Mode)).restore_input == ""
    assert plan_chains(parse_saved(leftovers.iptables_mode(IPV4)), set(Mode)).restore_input != ""
