"""What each document's kube-proxy does otherwise (behaviour.md E.10; documents 003, 002, 004)."""

from typing import Any

import pytest

from knft_compat.cluster import Masquerade
from knft_compat.ipvs import Settings, Vintage, cleanup, sync
from tests.compat.ipvs_page import NODE6, cluster, declared, lines, rules, served

SET = "-m set --match-set"
RANGES: dict[str, Any] = {"load_balancer_vips": ("203.0.113.9",), "load_balancer_source_ranges": ("10.0.0.0/8",)}
MASQUERADED = '-m comment --comment "kubernetes service traffic requiring SNAT"'
PLAIN = Masquerade(random_fully=False)


@pytest.mark.parametrize("vintage", Vintage)
def test_endpoints_are_chosen_as_the_newest_chooses_them(vintage: Vintage) -> None:
    """Who is terminating serves where no other does, though the older ones did not know that everywhere."""
    port = served("T10.244.1.1", "N10.244.1.2", external_ips=("198.51.100.1",), external_policy_local=True)
    assert lines(cluster(port), "ipvsadm", vintage=vintage) == lines(cluster(port), "ipvsadm")


class Test123:
    """Document 003: the listings at its end, and the chains, jumps and sets that its code names."""

    vintage = Vintage.V1_23

    def test_chains(self) -> None:
        nat = ["KUBE-SERVICES", "KUBE-POSTROUTING", "KUBE-FIREWALL", "KUBE-NODE-PORT", "KUBE-LOAD-BALANCER"]
        assert declared(cluster(), "nat", self.vintage) == [*nat, "KUBE-MARK-MASQ"]
        assert declared(cluster(), "filter", self.vintage) == ["KUBE-FORWARD", "KUBE-NODE-PORT"]

    def test_the_kubelets_chain_is_made_where_it_is_missing_and_never_emptied(self) -> None:
        first = lines(cluster(), "chains", vintage=self.vintage)[0]
        assert first == "iptables -w 5 -W 100000 -N KUBE-MARK-DROP -t nat 2>/dev/null || true"

    def test_jumps(self) -> None:
        inserted = [line.split(" -I ")[1].split()[0] for line in lines(cluster(), "jumps", vintage=self.vintage)[1::2]]
        assert inserted == ["OUTPUT", "PREROUTING", "POSTROUTING", "FORWARD", "INPUT"]

    def test_sets(self) -> None:
        created = [line for line in lines(cluster(), "ipset", vintage=self.vintage) if line.startswith("create ")]
        assert len(created) == 16
        assert not any("KUBE-IPVS-IPS" in line for line in created)

    def test_listing_2_1_masquerading_everything(self) -> None:
        of = cluster(served("L10.244.1.1"), masquerade=Masquerade(everything=True, random_fully=False))
        assert rules(of, "KUBE-POSTROUTING", vintage=self.vintage) == [
            f"{MASQUERADED} -m mark --mark 0x00004000/0x00004000 -j MASQUERADE",
            f"{SET} KUBE-LOOP-BACK dst,dst,src -j MASQUERADE",
        ]
        assert rules(of, "KUBE-SERVICES", vintage=self.vintage) == [
            f"{SET} KUBE-CLUSTER-IP dst,dst -j KUBE-MARK-MASQ",
            f"{SET} KUBE-CLUSTER-IP dst,dst -j ACCEPT",
        ]
        assert rules(of, "KUBE-MARK-MASQ", vintage=self.vintage) == ["-j MARK --or-mark 0x00004000"]

    def test_listing_2_2_a_cluster_cidr(self) -> None:
        found = rules(cluster(served(), masquerade=PLAIN), "KUBE-SERVICES", vintage=self.vintage)
        assert found[0] == f"{SET} KUBE-CLUSTER-IP dst,dst ! -s 10.244.0.0/16 -j KUBE-MARK-MASQ"

    def test_listing_2_3_load_balancers(self) -> None:
        of = cluster(served(**RANGES, external_policy_local=True))
        assert rules(of, "KUBE-FIREWALL", vintage=self.vintage) == [
            f"{SET} KUBE-LOAD-BALANCER-SOURCE-CIDR dst,dst,src -j RETURN",
            "-j KUBE-MARK-DROP",
        ]
        assert rules(of, "KUBE-LOAD-BALANCER", vintage=self.vintage) == [
            f"{SET} KUBE-LOAD-BALANCER-FW dst,dst -j KUBE-FIREWALL",
            f"{SET} KUBE-LOAD-BALANCER-LOCAL dst,dst -j RETURN",
            "-j KUBE-MARK-MASQ",
        ]
        found = rules(of, "KUBE-SERVICES", vintage=self.vintage)
        assert found[0] == f"{SET} KUBE-LOAD-BALANCER dst,dst -j KUBE-LOAD-BALANCER"
        assert found[-1] == f"{SET} KUBE-LOAD-BALANCER dst,dst -j ACCEPT"

    def test_listing_2_4_node_ports(self) -> None:
        of = cluster(served(node_port=30080, external_policy_local=True))
        assert rules(of, "KUBE-NODE-PORT", vintage=self.vintage) == [
            f"{SET} KUBE-NODE-PORT-LOCAL-TCP dst -j RETURN",
            "-j KUBE-MARK-MASQ",
        ]
        found = rules(of, "KUBE-SERVICES", vintage=self.vintage)
        assert found[0] == f"{SET} KUBE-NODE-PORT-TCP dst -j KUBE-NODE-PORT"

    def test_listing_2_5_external_ips(self) -> None:
        found = rules(cluster(served(external_ips=("198.51.100.1",))), "KUBE-SERVICES", vintage=self.vintage)
        assert found[1:4] == [
            f"{SET} KUBE-EXTERNAL-IP dst,dst -j KUBE-MARK-MASQ",
            f"{SET} KUBE-EXTERNAL-IP dst,dst -m physdev ! --physdev-is-in -m addrtype ! --src-type LOCAL -j ACCEPT",
            f"{SET} KUBE-EXTERNAL-IP dst,dst -m addrtype --dst-type LOCAL -j ACCEPT",
        ]


class Test126:
    """Document 002."""

    vintage = Vintage.V1_26

    def test_there_is_no_chain_for_what_the_node_may_not_dial(self) -> None:
        of = cluster(served(**RANGES))
        assert "KUBE-IPVS-OUT-FILTER" not in "\n".join(
            line for part in ("chains", "jumps", "iptables-restore") for line in lines(of, part, vintage=self.vintage)
        )

    def test_loopback_is_nothing_special(self) -> None:
        assert rules(cluster(), "KUBE-SERVICES", vintage=self.vintage) == [
            "-m addrtype --dst-type LOCAL -j KUBE-NODE-PORT"
        ]

    def test_local_external_ips_and_health_checks_do_not_pass_the_filter(self) -> None:
        found = rules(cluster(), "KUBE-IPVS-FILTER", table="filter", vintage=self.vintage)
        assert [rule.split()[3] for rule in found[:-1]] == ["KUBE-LOAD-BALANCER", "KUBE-CLUSTER-IP", "KUBE-EXTERNAL-IP"]

    def test_the_jumps_but_the_one_out_of_output(self) -> None:
        newest = lines(cluster(), "jumps")
        assert lines(cluster(), "jumps", vintage=self.vintage) == newest[:-2]


class Test129:
    """Document 004, which shows the sync alone; the rest is the newest's."""

    def test_it_is_the_newest_but_for_the_connections_that_it_forgets(self) -> None:
        of = cluster(served("L10.244.1.1", node_port=30080, **RANGES), before=[served(protocol="UDP")])
        pages = [sync(of, Settings(vintage=vintage)) for vintage in (Vintage.V1_29, Vintage.NEWEST)]
        for name in pages[0].names:
            texts = [page.part(name) for page in pages]
            assert (texts[0] == texts[1]) is (name != "conntrack")

    def test_what_the_node_may_not_dial_is_dropped(self) -> None:
        found = rules(cluster(served(**RANGES)), "KUBE-IPVS-OUT-FILTER", table="filter", vintage=Vintage.V1_29)
        assert found == ["-s 203.0.113.9 -m ipvs --vaddr 203.0.113.9 --vproto tcp --vport 80 -j DROP"]


@pytest.mark.parametrize("vintage", Vintage)
def test_parts_stand_in_the_order_of_their_use(vintage: Vintage) -> None:
    names = sync(cluster(), Settings(vintage=vintage)).names
    assert names[:9] == (
        "preconditions", "sysctls", "timeouts", "chains", "jumps", "device", "ipset", "ipvsadm", "addresses",
    )  # fmt: skip
    assert (names[9], names[-1]) == ("iptables-restore", "conntrack")


class TestCleanup:
    """What cleanup takes away, in order."""

    @pytest.mark.parametrize("vintage", Vintage)
    def test_servers_device_jumps_chains_and_sets(self, vintage: Vintage) -> None:
        newer = ("modules",) if vintage in (Vintage.V1_29, Vintage.NEWEST) else ()
        names = cleanup(cluster(), Settings(vintage=vintage)).names
        steps = ("ipvsadm-flush", "device-removed", "jumps-removed", "chains-removed", "ipset-destroyed")
        assert names == (*newer, *steps)

    @pytest.mark.parametrize("vintage", Vintage)
    def test_chains_are_emptied_before_any_is_deleted(self, vintage: Vintage) -> None:
        text = cleanup(cluster(), Settings(vintage=vintage)).part("chains-removed") or ""
        words = [line.split() for line in text.splitlines()]
        actions, chains = [line[5] for line in words], [line[6] for line in words]
        half = len(words) // 2
        assert actions == ["-F"] * half + ["-X"] * half
        assert chains[:half] == chains[half:]
        marking = "KUBE-MARK-MASQ" in chains
        assert marking is (vintage in (Vintage.V1_29, Vintage.NEWEST))
        assert "KUBE-MARK-DROP" not in chains

    def test_every_jump_is_removed(self) -> None:
        text = cleanup(cluster(), Settings()).part("jumps-removed") or ""
        assert text.count(" -D ") == 9

    def test_sets_of_ipv6_stay_as_kube_proxy_leaves_them(self) -> None:
        assert (cleanup(cluster(), Settings()).part("ipset-destroyed") or "").count("ipset -exist destroy KUBE-") == 17
        assert cleanup(cluster(node=NODE6), Settings()).part("ipset-destroyed") == ""
