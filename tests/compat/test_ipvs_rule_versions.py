"""Tests of the differences between versions (docs/behaviour/ipvs.md#versions).

For documents 002, 003 and 004 see docs/verification.md#original-documents.
"""

from typing import Any

import pytest

from knft_compat.ipvs import RuleVersion, Settings, cleanup, sync
from knft_compat.sync_input import Masquerade
from tests.compat.ipvs_render import NODE6, declared_chains, part_lines, rules, service_port, sync_input

SET = "-m set --match-set"
RANGES: dict[str, Any] = {"load_balancer_vips": ("203.0.113.9",), "load_balancer_source_ranges": ("10.0.0.0/8",)}
MASQUERADED = '-m comment --comment "kubernetes service traffic requiring SNAT"'
PLAIN = Masquerade(random_fully=False)


@pytest.mark.parametrize("rule_version", RuleVersion)
def test_endpoint_selection_does_not_depend_on_the_version(rule_version: RuleVersion) -> None:
    """Terminating endpoints serve if there are no others, in all versions, unlike with some older kube-proxies."""
    port = service_port("T10.244.1.1", "N10.244.1.2", external_ips=("198.51.100.1",), external_policy_local=True)
    assert part_lines(sync_input(port), "ipvsadm", rule_version=rule_version) == part_lines(sync_input(port), "ipvsadm")


class TestDocument003:
    """The listings, chains, jumps and sets of document 003."""

    rule_version = RuleVersion.DOCUMENT_003

    def test_creates_chains_of_document_003(self) -> None:
        nat = ["KUBE-SERVICES", "KUBE-POSTROUTING", "KUBE-FIREWALL", "KUBE-NODE-PORT", "KUBE-LOAD-BALANCER"]
        assert declared_chains(sync_input(), "nat", self.rule_version) == [*nat, "KUBE-MARK-MASQ"]
        assert declared_chains(sync_input(), "filter", self.rule_version) == ["KUBE-FORWARD", "KUBE-NODE-PORT"]

    def test_kubelet_chain_is_created_and_never_flushed(self) -> None:
        first = part_lines(sync_input(), "chains", rule_version=self.rule_version)[0]
        assert first == "iptables -w 5 -W 100000 -N KUBE-MARK-DROP -t nat 2>/dev/null || true"

    def test_jump_commands_are_those_of_document_003(self) -> None:
        inserted = [
            line.split(" -I ")[1].split()[0]
            for line in part_lines(sync_input(), "jumps", rule_version=self.rule_version)[1::2]
        ]
        assert inserted == ["OUTPUT", "PREROUTING", "POSTROUTING", "FORWARD", "INPUT"]

    def test_has_sets_of_document_003(self) -> None:
        created = [
            line
            for line in part_lines(sync_input(), "ipset", rule_version=self.rule_version)
            if line.startswith("create ")
        ]
        assert len(created) == 16
        assert not any("KUBE-IPVS-IPS" in line for line in created)

    def test_listing_2_1_masquerade_all(self) -> None:
        cluster = sync_input(
            service_port("L10.244.1.1"), masquerade=Masquerade(masquerade_all=True, random_fully=False)
        )
        assert rules(cluster, "KUBE-POSTROUTING", rule_version=self.rule_version) == [
            f"{MASQUERADED} -m mark --mark 0x00004000/0x00004000 -j MASQUERADE",
            f"{SET} KUBE-LOOP-BACK dst,dst,src -j MASQUERADE",
        ]
        assert rules(cluster, "KUBE-SERVICES", rule_version=self.rule_version) == [
            f"{SET} KUBE-CLUSTER-IP dst,dst -j KUBE-MARK-MASQ",
            f"{SET} KUBE-CLUSTER-IP dst,dst -j ACCEPT",
        ]
        assert rules(cluster, "KUBE-MARK-MASQ", rule_version=self.rule_version) == ["-j MARK --or-mark 0x00004000"]

    def test_listing_2_2_cluster_cidr(self) -> None:
        lines = rules(sync_input(service_port(), masquerade=PLAIN), "KUBE-SERVICES", rule_version=self.rule_version)
        assert lines[0] == f"{SET} KUBE-CLUSTER-IP dst,dst ! -s 10.244.0.0/16 -j KUBE-MARK-MASQ"

    def test_listing_2_3_load_balancers(self) -> None:
        cluster = sync_input(service_port(**RANGES, external_policy_local=True))
        assert rules(cluster, "KUBE-FIREWALL", rule_version=self.rule_version) == [
            f"{SET} KUBE-LOAD-BALANCER-SOURCE-CIDR dst,dst,src -j RETURN",
            "-j KUBE-MARK-DROP",
        ]
        assert rules(cluster, "KUBE-LOAD-BALANCER", rule_version=self.rule_version) == [
            f"{SET} KUBE-LOAD-BALANCER-FW dst,dst -j KUBE-FIREWALL",
            f"{SET} KUBE-LOAD-BALANCER-LOCAL dst,dst -j RETURN",
            "-j KUBE-MARK-MASQ",
        ]
        lines = rules(cluster, "KUBE-SERVICES", rule_version=self.rule_version)
        assert lines[0] == f"{SET} KUBE-LOAD-BALANCER dst,dst -j KUBE-LOAD-BALANCER"
        assert lines[-1] == f"{SET} KUBE-LOAD-BALANCER dst,dst -j ACCEPT"

    def test_listing_2_4_node_ports(self) -> None:
        cluster = sync_input(service_port(node_port=30080, external_policy_local=True))
        assert rules(cluster, "KUBE-NODE-PORT", rule_version=self.rule_version) == [
            f"{SET} KUBE-NODE-PORT-LOCAL-TCP dst -j RETURN",
            "-j KUBE-MARK-MASQ",
        ]
        lines = rules(cluster, "KUBE-SERVICES", rule_version=self.rule_version)
        assert lines[0] == f"{SET} KUBE-NODE-PORT-TCP dst -j KUBE-NODE-PORT"

    def test_listing_2_5_external_ips(self) -> None:
        lines = rules(
            sync_input(service_port(external_ips=("198.51.100.1",))), "KUBE-SERVICES", rule_version=self.rule_version
        )
        assert lines[1:4] == [
            f"{SET} KUBE-EXTERNAL-IP dst,dst -j KUBE-MARK-MASQ",
            f"{SET} KUBE-EXTERNAL-IP dst,dst -m physdev ! --physdev-is-in -m addrtype ! --src-type LOCAL -j ACCEPT",
            f"{SET} KUBE-EXTERNAL-IP dst,dst -m addrtype --dst-type LOCAL -j ACCEPT",
        ]


class TestDocument002:
    """The chains and rules of document 002."""

    rule_version = RuleVersion.DOCUMENT_002

    def test_no_chain_for_denied_sources(self) -> None:
        cluster = sync_input(service_port(**RANGES))
        assert "KUBE-IPVS-OUT-FILTER" not in "\n".join(
            line
            for part in ("chains", "jumps", "iptables-restore")
            for line in part_lines(cluster, part, rule_version=self.rule_version)
        )

    def test_no_rule_for_loopback_sources(self) -> None:
        assert rules(sync_input(), "KUBE-SERVICES", rule_version=self.rule_version) == [
            "-m addrtype --dst-type LOCAL -j KUBE-NODE-PORT"
        ]

    def test_ipvs_filter_omits_local_external_ips_and_health_checks(self) -> None:
        lines = rules(sync_input(), "KUBE-IPVS-FILTER", table="filter", rule_version=self.rule_version)
        assert [rule.split()[3] for rule in lines[:-1]] == ["KUBE-LOAD-BALANCER", "KUBE-CLUSTER-IP", "KUBE-EXTERNAL-IP"]

    def test_no_jump_from_output(self) -> None:
        newest = part_lines(sync_input(), "jumps")
        assert part_lines(sync_input(), "jumps", rule_version=self.rule_version) == newest[:-2]


class TestDocument004:
    """Document 004 shows only the sync; the rest equals the newest version."""

    def test_differs_from_newest_only_in_conntrack_deletions(self) -> None:
        cluster = sync_input(
            service_port("L10.244.1.1", node_port=30080, **RANGES), before=[service_port(protocol="UDP")]
        )
        outputs = [
            sync(cluster, Settings(rule_version=rule_version))
            for rule_version in (RuleVersion.DOCUMENT_004, RuleVersion.NEWEST)
        ]
        for name in outputs[0].part_names:
            texts = [output.part_text(name) for output in outputs]
            assert (texts[0] == texts[1]) is (name != "conntrack")

    def test_denied_sources_are_dropped(self) -> None:
        lines = rules(
            sync_input(service_port(**RANGES)),
            "KUBE-IPVS-OUT-FILTER",
            table="filter",
            rule_version=RuleVersion.DOCUMENT_004,
        )
        assert lines == ["-s 203.0.113.9 -m ipvs --vaddr 203.0.113.9 --vproto tcp --vport 80 -j DROP"]


@pytest.mark.parametrize("rule_version", RuleVersion)
def test_parts_are_in_kube_proxy_order(rule_version: RuleVersion) -> None:
    names = sync(sync_input(), Settings(rule_version=rule_version)).part_names
    assert names[:9] == (
        "preconditions", "sysctls", "timeouts", "chains", "jumps", "device", "ipset", "ipvsadm", "addresses",
    )  # fmt: skip
    assert (names[9], names[-1]) == ("iptables-restore", "conntrack")


class TestCleanup:
    """The parts of a cleanup, in order."""

    @pytest.mark.parametrize("rule_version", RuleVersion)
    def test_parts_of_cleanup(self, rule_version: RuleVersion) -> None:
        newer = ("modules",) if rule_version in (RuleVersion.DOCUMENT_004, RuleVersion.NEWEST) else ()
        names = cleanup(sync_input(), Settings(rule_version=rule_version)).part_names
        steps = ("ipvsadm-flush", "device-removed", "jumps-removed", "chains-removed", "ipset-destroyed")
        assert names == (*newer, *steps)

    @pytest.mark.parametrize("rule_version", RuleVersion)
    def test_chains_are_flushed_before_any_is_deleted(self, rule_version: RuleVersion) -> None:
        text = cleanup(sync_input(), Settings(rule_version=rule_version)).part_text("chains-removed") or ""
        commands = [line.split() for line in text.splitlines()]
        actions, chains = [line[5] for line in commands], [line[6] for line in commands]
        half = len(commands) // 2
        assert actions == ["-F"] * half + ["-X"] * half
        assert chains[:half] == chains[half:]
        has_mark_chain = "KUBE-MARK-MASQ" in chains
        assert has_mark_chain is (rule_version in (RuleVersion.DOCUMENT_004, RuleVersion.NEWEST))
        assert "KUBE-MARK-DROP" not in chains

    def test_every_jump_is_removed(self) -> None:
        text = cleanup(sync_input(), Settings()).part_text("jumps-removed") or ""
        assert text.count(" -D ") == 9

    def test_ipv6_sets_are_kept(self) -> None:
        assert (cleanup(sync_input(), Settings()).part_text("ipset-destroyed") or "").count(
            "ipset -exist destroy KUBE-"
        ) == 17
        assert cleanup(sync_input(node=NODE6), Settings()).part_text("ipset-destroyed") == ""
