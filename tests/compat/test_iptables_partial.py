"""Tests of partial syncs, stale chains and large clusters (docs/behaviour/iptables.md#sync-kinds)."""

from pathlib import Path

import pytest

from tests.compat.iptables_render import (
    NODE,
    Manifest,
    chains,
    endpoints,
    manifest_list,
    render,
    restore_input,
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
STALE_CHAINS = ("KUBE-SVC-AAAAAAAAAAAAAAAA", "KUBE-EXT-AAAAAAAAAAAAAAAA", "KUBE-FW-AAAAAAAAAAAAAAAA",
        "KUBE-SVL-AAAAAAAAAAAAAAAA", "KUBE-SEP-BBBBBBBBBBBBBBBB")  # fmt: skip


@pytest.fixture
def before(tmp_path: Path) -> Path:
    """Write the manifests of the previous sync, with both Services."""
    return manifests(tmp_path, BOTH)


def manifests(folder: Path, objects: list[Manifest]) -> Path:
    """Write objects to a file."""
    path = folder / "before.json"
    path.write_text(manifest_list(*objects))
    return path


def existing(folder: Path, *names: str, header: str = "") -> str:
    """Write iptables-save output with some chains of the nat table; return the flag's value."""
    path = folder / "saved.txt"
    lines = [header] if header else []
    lines += ["*nat", ":PREROUTING ACCEPT [3:180]", *(f":{chain} - [0:0]" for chain in names)]
    lines += ["-A PREROUTING -m comment --comment x -j KUBE-SERVICES", "COMMIT"]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def deleted(text: str) -> list[str]:
    """Return the deleted chains."""
    return [line.removeprefix("-X ") for line in table(text, "nat") if line.startswith("-X")]


def test_partial_sync_omits_chains_of_unchanged_services() -> None:
    full, partial = restore_input(BOTH), restore_input(BOTH, "--changed", "ns2/svc2")
    assert chains(full)[FIXED:] == [A_SVC, A_SEP, B_SVC, B_SEP]
    assert chains(partial)[FIXED:] == [B_SVC, B_SEP]
    assert rules(partial, A_SVC) == rules(partial, A_SEP) == []
    assert [rules(partial, chain) for chain in (B_SVC, B_SEP)] == [rules(full, chain) for chain in (B_SVC, B_SEP)]


def test_partial_sync_includes_all_shared_rules() -> None:
    full, partial = restore_input(BOTH), restore_input(BOTH, "--changed", "ns2/svc2")
    assert table(partial, "filter") == table(full, "filter")
    for chain in chains(full)[:FIXED]:
        assert rules(partial, chain) == rules(full, chain)


def test_partial_sync_omits_jumps_counters_and_sysctl() -> None:
    for part in ("sysctls", "jumps", "nfacct"):
        assert render(BOTH, "--part", part) != ""
        assert render(BOTH, "--part", part, "--changed", "ns2/svc2") == ""


def test_changed_flag_accepts_several_services() -> None:
    assert restore_input(BOTH, "--changed", "ns2/svc2", "--changed", "ns1/svc1") == restore_input(BOTH)


def test_changed_may_name_a_deleted_service(tmp_path: Path) -> None:
    done = run(BOTH, "--part", "iptables-restore", "--changed", "ns3/svc3")
    assert chains(done.stdout)[FIXED:] == []
    warning = "knft: --changed: Service ns3/svc3 is in no manifest; remove it from --changed unless it was deleted"
    assert done.stderr.splitlines()[1:] == [warning]
    deleted_manifests = manifests(tmp_path, [service("ns3/svc3")])
    assert run(BOTH, "--before", str(deleted_manifests), "--changed", "ns3/svc3").stderr == done.stderr.replace(
        f"{warning}\n", ""
    )


def test_blanks_around_a_name_are_ignored() -> None:
    assert restore_input(BOTH, "--changed", " ns2/svc2\n") == restore_input(BOTH, "--changed", "ns2/svc2")


def test_unchanged_cluster_writes_no_service_chains(before: Path) -> None:
    text = restore_input(BOTH, "--before", str(before))
    assert chains(text)[FIXED:] == []
    assert deleted(text) == []


def test_changed_services_are_written(before: Path) -> None:
    after = [*A, B[0], endpoints("ns2/svc2", "10.180.0.2", "10.180.0.3")]
    assert chains(restore_input(after, "--before", str(before)))[FIXED:][:2] == [B_SVC, B_SEP]
    changed = [*A, service("ns2/svc2", clusterIP="10.96.0.3"), B[1]]
    assert chains(restore_input(changed, "--before", str(before)))[FIXED:] == [B_SVC, B_SEP]


def test_before_and_changed_are_combined(before: Path) -> None:
    after = [*A, B[0], endpoints("ns2/svc2", "10.180.0.2", "10.180.0.3")]
    text = restore_input(after, "--before", str(before), "--changed", "ns1/svc1")
    assert [chain for chain in chains(text) if chain in (A_SVC, A_SEP)] == [A_SVC, A_SEP]


def test_changed_frontend_owner_does_not_make_a_service_changed(tmp_path: Path) -> None:
    """kube-proxy has no owners of frontends: a Service whose cluster IP an older Service claims is unchanged."""
    young = service("ns2/svc2", clusterIP="10.96.0.1")
    old = service("ns1/svc1")
    old["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z"
    before = manifests(tmp_path, [young, B[1]])
    text = restore_input([old, A[1], young, B[1]], "--before", str(before))
    assert chains(text)[FIXED:] == [A_SVC, A_SEP]


def test_creation_time_is_not_a_change(tmp_path: Path) -> None:
    recreated = service("ns1/svc1")
    recreated["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z"
    before = manifests(tmp_path, BOTH)
    assert chains(restore_input([recreated, A[1], *B], "--before", str(before)))[FIXED:] == []


def node(zone: str) -> Manifest:
    """Return the node in a zone."""
    labels = {"topology.kubernetes.io/zone": zone}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "labels": labels}}


def test_zone_change_causes_a_full_sync(tmp_path: Path) -> None:
    """Endpoints of all Services are selected again (docs/behaviour/tracking.md#event-handling)."""
    before = manifests(tmp_path, [node("zone-a"), *BOTH])
    for more in ((), ("--changed", "ns1/svc1")):
        flags = ("--before", str(before), *more)
        assert restore_input([node("zone-b"), *BOTH], *flags) == restore_input(BOTH)
        assert render([node("zone-b"), *BOTH], "--part", "jumps", *flags) == render(BOTH, "--part", "jumps")
        assert chains(restore_input([node("zone-a"), *BOTH], *flags)) != chains(restore_input(BOTH))


def test_chains_of_a_deleted_service_are_deleted(before: Path) -> None:
    text = restore_input(A, "--before", str(before))
    assert deleted(text) == [B_SEP, B_SVC]
    assert chains(text)[FIXED:] == [B_SEP, B_SVC]


def test_chain_of_a_removed_endpoint_is_deleted(before: Path) -> None:
    text = restore_input([*A, B[0], endpoints("ns2/svc2", "10.180.0.3")], "--before", str(before))
    assert deleted(text) == [B_SEP]


def test_stale_chains_are_flushed_and_deleted(tmp_path: Path) -> None:
    path = existing(tmp_path, "KUBE-SERVICES", A_SVC, *STALE_CHAINS, A_SEP, "DOCKER", "KUBE-MARK-DROP")
    text = restore_input(A, "--existing", path)
    assert deleted(text) == sorted(STALE_CHAINS)
    assert chains(text)[FIXED:] == [A_SVC, A_SEP, *sorted(STALE_CHAINS)]
    assert table(text, "nat")[-1].endswith("-j KUBE-NODEPORTS")
    assert table(text, "nat")[-2].startswith("-X ")


def test_chains_omitted_by_a_partial_sync_are_not_stale(tmp_path: Path) -> None:
    path = existing(tmp_path, A_SVC, A_SEP, B_SVC, B_SEP, *STALE_CHAINS)
    assert deleted(restore_input(BOTH, "--existing", path, "--changed", "ns2/svc2")) == sorted(STALE_CHAINS)


def test_existing_takes_precedence_over_before(tmp_path: Path, before: Path) -> None:
    path = existing(tmp_path, A_SVC, A_SEP, STALE_CHAINS[0])
    assert deleted(restore_input(A, "--before", str(before), "--existing", path)) == [STALE_CHAINS[0]]


def test_chain_of_the_same_name_in_another_table_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "saved.txt"
    path.write_text(f"*filter\n:INPUT ACCEPT [0:0]\n:{STALE_CHAINS[0]} - [0:0]\nCOMMIT\n")
    assert deleted(restore_input(A, "--existing", str(path))) == []


def test_each_family_reads_its_own_rules(tmp_path: Path) -> None:
    path = existing(
        tmp_path, *STALE_CHAINS, header="# Generated by ip6tables-nft-save v1.8.9 (nf_tables) on Mon Jan  1 2024"
    )
    text = render([], "--existing", path, "--part", "iptables-restore", "--family", "ipv6")
    assert deleted(text) == sorted(STALE_CHAINS)


def test_one_file_with_rules_of_both_families(tmp_path: Path) -> None:
    first = Path(
        existing(tmp_path, STALE_CHAINS[0], header="# Generated by iptables-save v1.8.9 on Mon Jan  1 2024")
    ).read_text()
    second = Path(
        existing(tmp_path, STALE_CHAINS[1], header="# Generated by ip6tables-save v1.8.9 on Mon Jan  1 2024")
    ).read_text()
    path = tmp_path / "both.txt"
    path.write_text(first + second)
    assert deleted(restore_input([], "--existing", str(path))) == [STALE_CHAINS[0]]
    assert deleted(restore_input([], "--existing", str(path), "--family", "ipv6")) == [STALE_CHAINS[1]]


@pytest.mark.parametrize("text", ["", "# Generated by iptables-save v1.8.9 on Mon Jan  1 2024\n"])
def test_existing_file_without_rules_changes_nothing(tmp_path: Path, text: str) -> None:
    path = tmp_path / "saved.txt"
    path.write_text(text)
    assert restore_input(A, "--existing", str(path)) == restore_input(A)


def test_rules_with_counters_are_read(tmp_path: Path) -> None:
    path = tmp_path / "saved.txt"
    path.write_text(
        f"*nat\n:PREROUTING ACCEPT [1:2]\n:{STALE_CHAINS[0]} - [0:0]\n[5:300] -A PREROUTING -j DOCKER\nCOMMIT\n"
    )
    assert deleted(restore_input([], "--existing", str(path))) == [STALE_CHAINS[0]]


def large_cluster(count: int) -> list[Manifest]:
    """Return a cluster with ``count`` endpoints, most of them of one Service, some of them not ready."""
    addresses = [f"10.{180 + number // 250}.0.{number % 250 + 1}" for number in range(count - 2)]
    return [service("ns1/svc1"), endpoints("ns1/svc1", *addresses[:-500], *(f"T{it}" for it in addresses[-500:])),
            B[0], endpoints("ns2/svc2", "10.180.0.1", "10.180.0.2")]  # fmt: skip


def test_large_cluster_omits_endpoint_comments(tmp_path: Path) -> None:
    text = restore_input(large_cluster(1001), "--existing", existing(tmp_path, *STALE_CHAINS))
    assert rules(text, B_SEP) == [
        "-s 10.180.0.2 -j KUBE-MARK-MASQ",
        "-m tcp -p tcp -j DNAT --to-destination 10.180.0.2:80",
    ]
    assert rules(text, B_SVC)[-1] == f"-j {B_SEP}"
    assert not any("->" in line for line in text.splitlines())
    assert '"ns2/svc2:p80 cluster IP"' in text
    assert deleted(text) == sorted(STALE_CHAINS)


def test_cluster_of_a_thousand_endpoints_is_not_large() -> None:
    text = restore_input(large_cluster(1000))
    assert rules(text, B_SVC)[-1] == f'-m comment --comment "ns2/svc2:p80 -> 10.180.0.2:80" -j {B_SEP}'
