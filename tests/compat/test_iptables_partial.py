"""Partial syncs, stale chains, and large clusters (D.4, D.6, D.7)."""

from pathlib import Path

import pytest

from tests.compat.iptables_page import (
    NODE,
    Manifest,
    chains,
    endpoints,
    listed,
    printed,
    restore,
    rules,
    run,
    service,
    table,
)

A_SVC, B_SVC = "KUBE-SVC-XPGD46QRK7WJZT7O", "KUBE-SVC-GNZBNJ2PO5MGZ6GT"
A_SEP, B_SEP = "KUBE-SEP-SXIVWICOYRO3J4NJ", "KUBE-SEP-RS4RBKLTHTF2IUXJ"
FIXED = 4
A = [service("ns1/svc1"), endpoints("ns1/svc1", "10.180.0.1")]
B = [service("ns2/svc2", clusterIP="10.96.0.2"), endpoints("ns2/svc2", "10.180.0.2")]
BOTH = [*A, *B]
GONE = ("KUBE-SVC-AAAAAAAAAAAAAAAA", "KUBE-EXT-AAAAAAAAAAAAAAAA", "KUBE-FW-AAAAAAAAAAAAAAAA",
        "KUBE-SVL-AAAAAAAAAAAAAAAA", "KUBE-SEP-BBBBBBBBBBBBBBBB")  # fmt: skip


@pytest.fixture
def before(tmp_path: Path) -> Path:
    """The manifests of the sync before: both Services."""
    return manifests(tmp_path, BOTH)


def manifests(folder: Path, objects: list[Manifest]) -> Path:
    """Write objects to a file."""
    path = folder / "before.json"
    path.write_text(listed(*objects))
    return path


def existing(folder: Path, *found: str, header: str = "") -> str:
    """Write what iptables-save prints of some chains of the nat table; return the flag's value."""
    path = folder / "saved.txt"
    lines = [header] if header else []
    lines += ["*nat", ":PREROUTING ACCEPT [3:180]", *(f":{chain} - [0:0]" for chain in found)]
    lines += ["-A PREROUTING -m comment --comment x -j KUBE-SERVICES", "COMMIT"]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def deleted(text: str) -> list[str]:
    """Return the chains that are deleted."""
    return [line.removeprefix("-X ") for line in table(text, "nat") if line.startswith("-X")]


def test_a_partial_sync_leaves_out_the_chains_of_others() -> None:
    full, partial = restore(BOTH), restore(BOTH, "--changed", "ns2/svc2")
    assert chains(full)[FIXED:] == [A_SVC, A_SEP, B_SVC, B_SEP]
    assert chains(partial)[FIXED:] == [B_SVC, B_SEP]
    assert rules(partial, A_SVC) == rules(partial, A_SEP) == []
    assert [rules(partial, chain) for chain in (B_SVC, B_SEP)] == [rules(full, chain) for chain in (B_SVC, B_SEP)]


def test_a_partial_sync_has_all_that_services_share() -> None:
    full, partial = restore(BOTH), restore(BOTH, "--changed", "ns2/svc2")
    assert table(partial, "filter") == table(full, "filter")
    for chain in chains(full)[:FIXED]:
        assert rules(partial, chain) == rules(full, chain)


def test_a_partial_sync_takes_jumps_counters_and_the_sysctl_as_made() -> None:
    for part in ("sysctls", "jumps", "nfacct"):
        assert printed(BOTH, "--part", part) != ""
        assert printed(BOTH, "--part", part, "--changed", "ns2/svc2") == ""


def test_several_changed_services() -> None:
    assert restore(BOTH, "--changed", "ns2/svc2", "--changed", "ns1/svc1") == restore(BOTH)


def test_a_service_that_has_gone_may_have_changed(tmp_path: Path) -> None:
    done = run(BOTH, "--part", "iptables-restore", "--changed", "ns3/svc3")
    assert chains(done.stdout)[FIXED:] == []
    assert done.stderr == "knft: --changed: no manifest has a Service ns3/svc3; that is right only where it has gone\n"
    gone = manifests(tmp_path, [service("ns3/svc3")])
    assert run(BOTH, "--before", str(gone), "--changed", "ns3/svc3").stderr == ""


def test_blanks_around_a_name_are_nobodys() -> None:
    assert restore(BOTH, "--changed", " ns2/svc2\n") == restore(BOTH, "--changed", "ns2/svc2")


def test_nothing_differs_from_before(before: Path) -> None:
    text = restore(BOTH, "--before", str(before))
    assert chains(text)[FIXED:] == []
    assert deleted(text) == []


def test_what_differs_from_before_is_written(before: Path) -> None:
    after = [*A, B[0], endpoints("ns2/svc2", "10.180.0.2", "10.180.0.3")]
    assert chains(restore(after, "--before", str(before)))[FIXED:][:2] == [B_SVC, B_SEP]
    changed = [*A, service("ns2/svc2", clusterIP="10.96.0.3"), B[1]]
    assert chains(restore(changed, "--before", str(before)))[FIXED:] == [B_SVC, B_SEP]


def test_before_and_changed_add_up(before: Path) -> None:
    after = [*A, B[0], endpoints("ns2/svc2", "10.180.0.2", "10.180.0.3")]
    text = restore(after, "--before", str(before), "--changed", "ns1/svc1")
    assert [chain for chain in chains(text) if chain in (A_SVC, A_SEP)] == [A_SVC, A_SEP]


def test_who_owns_a_frontend_is_no_change(tmp_path: Path) -> None:
    """A Service that loses its cluster IP to an older one is written as before: kube-proxy knows no owners."""
    young = service("ns2/svc2", clusterIP="10.96.0.1")
    old = service("ns1/svc1")
    old["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z"
    before = manifests(tmp_path, [young, B[1]])
    text = restore([old, A[1], young, B[1]], "--before", str(before))
    assert chains(text)[FIXED:] == [A_SVC, A_SEP]


def test_when_a_service_was_made_is_no_change(tmp_path: Path) -> None:
    made_anew = service("ns1/svc1")
    made_anew["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z"
    before = manifests(tmp_path, BOTH)
    assert chains(restore([made_anew, A[1], *B], "--before", str(before)))[FIXED:] == []


def node(zone: str) -> Manifest:
    """Return the node in a zone."""
    labels = {"topology.kubernetes.io/zone": zone}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "labels": labels}}


def test_a_node_in_another_zone_means_a_full_sync(tmp_path: Path) -> None:
    """Whichever endpoints that concerns; A.7."""
    before = manifests(tmp_path, [node("zone-a"), *BOTH])
    for more in ((), ("--changed", "ns1/svc1")):
        flags = ("--before", str(before), *more)
        assert restore([node("zone-b"), *BOTH], *flags) == restore(BOTH)
        assert printed([node("zone-b"), *BOTH], "--part", "jumps", *flags) == printed(BOTH, "--part", "jumps")
        assert chains(restore([node("zone-a"), *BOTH], *flags)) != chains(restore(BOTH))


def test_what_the_sync_before_left_is_deleted(before: Path) -> None:
    text = restore(A, "--before", str(before))
    assert deleted(text) == [B_SEP, B_SVC]
    assert chains(text)[FIXED:] == [B_SEP, B_SVC]


def test_an_endpoint_that_has_gone_leaves_its_chain(before: Path) -> None:
    text = restore([*A, B[0], endpoints("ns2/svc2", "10.180.0.3")], "--before", str(before))
    assert deleted(text) == [B_SEP]


def test_stale_chains_are_emptied_and_deleted(tmp_path: Path) -> None:
    path = existing(tmp_path, "KUBE-SERVICES", A_SVC, *GONE, A_SEP, "DOCKER", "KUBE-MARK-DROP")
    text = restore(A, "--existing", path)
    assert deleted(text) == sorted(GONE)
    assert chains(text)[FIXED:] == [A_SVC, A_SEP, *sorted(GONE)]
    assert table(text, "nat")[-1].endswith("-j KUBE-NODEPORTS")
    assert table(text, "nat")[-2].startswith("-X ")


def test_chains_that_a_partial_sync_leaves_out_are_not_stale(tmp_path: Path) -> None:
    path = existing(tmp_path, A_SVC, A_SEP, B_SVC, B_SEP, *GONE)
    assert deleted(restore(BOTH, "--existing", path, "--changed", "ns2/svc2")) == sorted(GONE)


def test_iptables_save_is_asked_and_not_what_was_before(tmp_path: Path, before: Path) -> None:
    path = existing(tmp_path, A_SVC, A_SEP, GONE[0])
    assert deleted(restore(A, "--before", str(before), "--existing", path)) == [GONE[0]]


def test_the_same_name_in_another_table_is_somebody_elses(tmp_path: Path) -> None:
    path = tmp_path / "saved.txt"
    path.write_text(f"*filter\n:INPUT ACCEPT [0:0]\n:{GONE[0]} - [0:0]\nCOMMIT\n")
    assert deleted(restore(A, "--existing", str(path))) == []


def test_each_family_looks_at_its_own_rules(tmp_path: Path) -> None:
    path = existing(tmp_path, *GONE, header="# Generated by ip6tables-nft-save v1.8.9 (nf_tables) on Mon Jan  1 2024")
    text = printed([], "--existing", path, "--part", "iptables-restore", "--family", "ipv6")
    assert deleted(text) == sorted(GONE)


def test_saves_of_both_families_in_one_file(tmp_path: Path) -> None:
    first = Path(
        existing(tmp_path, GONE[0], header="# Generated by iptables-save v1.8.9 on Mon Jan  1 2024")
    ).read_text()
    second = Path(
        existing(tmp_path, GONE[1], header="# Generated by ip6tables-save v1.8.9 on Mon Jan  1 2024")
    ).read_text()
    path = tmp_path / "both.txt"
    path.write_text(first + second)
    assert deleted(restore([], "--existing", str(path))) == [GONE[0]]
    assert deleted(restore([], "--existing", str(path), "--family", "ipv6")) == [GONE[1]]


@pytest.mark.parametrize("text", ["", "# Generated by iptables-save v1.8.9 on Mon Jan  1 2024\n"])
def test_a_machine_without_rules(tmp_path: Path, text: str) -> None:
    path = tmp_path / "saved.txt"
    path.write_text(text)
    assert restore(A, "--existing", str(path)) == restore(A)


def test_counted_rules_are_read(tmp_path: Path) -> None:
    path = tmp_path / "saved.txt"
    path.write_text(f"*nat\n:PREROUTING ACCEPT [1:2]\n:{GONE[0]} - [0:0]\n[5:300] -A PREROUTING -j DOCKER\nCOMMIT\n")
    assert deleted(restore([], "--existing", str(path))) == [GONE[0]]


def large(count: int) -> list[Manifest]:
    """Return a cluster with so many endpoints in all, most of them of one Service, some of them not usable."""
    addresses = [f"10.{180 + number // 250}.0.{number % 250 + 1}" for number in range(count - 2)]
    return [service("ns1/svc1"), endpoints("ns1/svc1", *addresses[:-500], *(f"T{it}" for it in addresses[-500:])),
            B[0], endpoints("ns2/svc2", "10.180.0.1", "10.180.0.2")]  # fmt: skip


def test_a_large_cluster_has_few_comments(tmp_path: Path) -> None:
    text = restore(large(1001), "--existing", existing(tmp_path, *GONE))
    assert rules(text, B_SEP) == [
        "-s 10.180.0.2 -j KUBE-MARK-MASQ",
        "-m tcp -p tcp -j DNAT --to-destination 10.180.0.2:80",
    ]
    assert rules(text, B_SVC)[-1] == f"-j {B_SEP}"
    assert not any("->" in line for line in text.splitlines())
    assert '"ns2/svc2:p80 cluster IP"' in text
    assert deleted(text) == sorted(GONE)


def test_a_thousand_endpoints_are_not_many() -> None:
    text = restore(large(1000))
    assert rules(text, B_SVC)[-1] == f'-m comment --comment "ns2/svc2:p80 -> 10.180.0.2:80" -j {B_SEP}'
