"""``knft cleanup --kube-proxy`` with the real tools and kernel: it removes kube-proxy's leftovers and nothing else."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.support import leftovers
from tests.support.knft_command import KNFT, knft
from tests.support.lab.links import netlink
from tests.support.old_node import BACKENDS, OldNode

pytestmark = pytest.mark.kernel
KUBE_PROXY_CHAIN = re.compile(r"KUBE-(?!FIREWALL|KUBELET|MARK-DROP|IPTABLES-HINT|SVCX|SVC-1|SVC-NOT|CLUSTER-IP-MINE)")
FOREIGN_SETS = ("MINEinet", "MINEinet6")


def test_cleanup_removes_only_kube_proxys_objects(old_node: OldNode) -> None:
    """All modes have leftovers, in both backends and families; counters and policies of other rules stay too."""
    old_node.add_foreign_rules()
    before = old_node.state()
    old_node.add_iptables_mode(*BACKENDS)
    old_node.add_ipvs_mode(*BACKENDS)
    old_node.add_nftables_mode()
    assert all(KUBE_PROXY_CHAIN.search(text) for text in old_node.rules().values())

    output = old_node.cleanup("all")
    assert before == old_node.state()
    for backend in old_node.rules():
        assert re.search(rf"^{backend}: \d+ chains and \d+ rules removed$", output, re.MULTILINE), output
    assert "ipsets: 34 removed" in output
    assert "table ip kube-proxy: removed\ntable ip6 kube-proxy: removed\n" in output


def test_second_cleanup_finds_nothing(old_node: OldNode) -> None:
    old_node.add_foreign_rules()
    old_node.add_iptables_mode("nft")
    old_node.add_ipvs_mode("legacy")
    old_node.add_nftables_mode()
    old_node.cleanup("all")
    before = old_node.state()
    assert old_node.cleanup("all") == (
        "virtual servers: skipped, IPVS is not loaded\n"
        "device kube-ipvs0: not found\n"
        "iptables-nft: nothing found\n"
        "ip6tables-nft: nothing found\n"
        "iptables-legacy: nothing found\n"
        "ip6tables-legacy: nothing found\n"
        "ipsets: nothing found\n"
        "table ip kube-proxy: not found\n"
        "table ip6 kube-proxy: not found\n"
    )
    assert before == old_node.state()


def test_cleanup_makes_no_tables_on_an_empty_machine(old_node: OldNode) -> None:
    """Looking for leftovers makes no table and no built-in chain."""
    old_node.cleanup("all")
    assert old_node.namespace.run(["nft", "list", "ruleset"]).stdout == ""
    assert set(old_node.rules().values()) == {""}


@pytest.mark.parametrize("backend", BACKENDS)
def test_cleanup_of_mode_iptables_keeps_other_modes(old_node: OldNode, backend: str) -> None:
    """Leftovers of mode ipvs in the other backend, and those of mode nftables, stay."""
    (other,) = set(BACKENDS) - {backend}
    old_node.add_foreign_rules()
    old_node.add_ipvs_mode(other)
    old_node.add_nftables_mode()
    before = old_node.state()
    old_node.add_iptables_mode(backend)
    assert before != old_node.state()
    old_node.cleanup("iptables")
    assert before == old_node.state()


@pytest.mark.parametrize("backend", BACKENDS)
def test_cleanup_of_mode_ipvs_keeps_other_modes(old_node: OldNode, backend: str) -> None:
    """It removes the ipsets too, although the kernel may release the rules that use them with a delay."""
    (other,) = set(BACKENDS) - {backend}
    old_node.add_foreign_rules()
    old_node.add_iptables_mode(other)
    old_node.add_nftables_mode()
    before = old_node.state()
    old_node.add_ipvs_mode(backend)
    old_node.cleanup("ipvs")
    assert before == old_node.state()


def test_cleanup_of_mode_nftables_keeps_other_modes(old_node: OldNode) -> None:
    old_node.add_foreign_rules()
    old_node.add_iptables_mode("nft")
    old_node.add_ipvs_mode("legacy")
    before = old_node.state()
    old_node.add_nftables_mode()
    assert old_node.cleanup("nftables") == "table ip kube-proxy: removed\ntable ip6 kube-proxy: removed\n"
    assert before == old_node.state()


@pytest.mark.parametrize("backend", BACKENDS)
def test_shared_chains_stay_if_ipvs_is_removed_before_iptables(old_node: OldNode, backend: str) -> None:
    """The second cleanup removes the shared chains; the first one removes their rules that use ipsets."""
    old_node.add_foreign_rules()
    before = old_node.state()
    old_node.add_ipvs_mode(backend)
    old_node.add_iptables_mode(backend)

    old_node.cleanup("ipvs")
    after_first = old_node.rules()[f"iptables-{backend}"]
    assert "KUBE-NODE-PORT " not in after_first
    assert "--match-set KUBE" not in after_first
    assert '-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES' in after_first
    assert re.search(r"-A KUBE-SERVICES .*-j KUBE-SVC-", after_first)
    assert old_node.set_names() == {*FOREIGN_SETS, "KUBE-CLUSTER-IP-MINE"}
    old_node.cleanup("iptables")
    assert before == old_node.state()


@pytest.mark.parametrize("backend", BACKENDS)
def test_shared_chains_stay_if_iptables_is_removed_before_ipvs(old_node: OldNode, backend: str) -> None:
    old_node.add_foreign_rules()
    before = old_node.state()
    old_node.add_ipvs_mode(backend)
    old_node.add_iptables_mode(backend)
    output = old_node.cleanup("iptables")
    kept = "5 kept, since another mode of kube-proxy uses them too; remove them with --kube-proxy all"
    assert f"iptables-{backend}: chains: {kept}\n" in output
    after_first = old_node.rules()[f"iptables-{backend}"]
    chains = set(re.findall(r"^:(KUBE-\S+)|-[jg] (KUBE-\S+)", after_first, re.MULTILINE))
    names = {name for pair in chains for name in pair}
    assert not any(
        re.match(r"KUBE-(SVC|SEP|EXT|FW)-[A-Z2-7]{16}|KUBE-(NODEPORTS|PROXY-CANARY)", name) for name in names
    )
    assert "--match-set KUBE-CLUSTER-IP" in after_first
    old_node.cleanup("ipvs")
    assert before == old_node.state()


@pytest.mark.parametrize("backend", BACKENDS)
def test_chain_that_a_foreign_chain_jumps_to_stays_and_is_named(old_node: OldNode, backend: str) -> None:
    """The CNI plugin portmap has such chains (``externalSetMarkChain``). Jumps from built-in chains are removed."""
    old_node.add_foreign_rules()
    old_node.add_iptables_mode(backend)
    foreign = "*nat\n-A CNI-HOSTPORT-DNAT -p tcp --dport 8443 -j KUBE-MARK-MASQ\n-A OUTPUT -j KUBE-MARK-MASQ\nCOMMIT\n"
    old_node.restore(backend, leftovers.IPV4, foreign)
    output = old_node.cleanup("iptables")
    assert (
        f"iptables-{backend}: chain in table nat: KUBE-MARK-MASQ: kept, since a chain of another program jumps to it\n"
        in output
    )
    remaining = {line for line in old_node.rules()[f"iptables-{backend}"].splitlines() if "KUBE-MARK-MASQ" in line}
    assert remaining == {
        ":KUBE-MARK-MASQ - [0:0]",
        "[0:0] -A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000",
        "[0:0] -A CNI-HOSTPORT-DNAT -p tcp -m tcp --dport 8443 -j KUBE-MARK-MASQ",
    }


def test_ipset_that_a_foreign_rule_uses_stays_and_is_named(old_node: OldNode) -> None:
    old_node.add_foreign_rules()
    old_node.add_ipvs_mode("nft")
    foreign = "*filter\n-A DOCKER-USER -m set --match-set KUBE-CLUSTER-IP dst,dst -j RETURN\nCOMMIT\n"
    old_node.restore("nft", leftovers.IPV4, foreign)
    output = old_node.cleanup("ipvs")
    assert "ipsets: 33 removed\n" in output
    assert "ipset KUBE-CLUSTER-IP: kept, since a rule of another program uses it\n" in output
    assert old_node.set_names() == {*FOREIGN_SETS, "KUBE-CLUSTER-IP-MINE", "KUBE-CLUSTER-IP"}


def test_device_of_another_kind_stays(old_node: OldNode) -> None:
    with netlink(old_node.namespace) as link:
        link.add_bridge("kube-ipvs0", "02:00:00:00:00:09")
    output = old_node.cleanup("ipvs")
    assert "device kube-ipvs0: kept, its kind is bridge, so it is not kube-proxy's\n" in output
    assert "kube-ipvs0" in old_node.namespace.run(["cat", "/proc/net/dev"]).stdout


def test_cleanups_of_knft_and_of_kube_proxy_are_independent(old_node: OldNode) -> None:
    """``knft cleanup`` leaves kube-proxy's leftovers, and with ``--kube-proxy`` it leaves knft's tables."""
    old_node.add_iptables_mode("nft")
    old_node.add_nftables_mode()
    before = old_node.state()
    examples = Path(__file__).parent.parent.parent / "examples"
    knft(old_node.namespace, "run", "--once", "--manifests", str(examples), "--node", "node-1")
    served = old_node.namespace.run(["nft", "list", "table", "ip", "knft"]).stdout
    knft(old_node.namespace, "cleanup")
    assert before == old_node.state()
    knft(old_node.namespace, "run", "--once", "--manifests", str(examples), "--node", "node-1")
    old_node.cleanup("all")
    assert old_node.tables() == {"table ip knft", "table ip6 knft"}
    assert served == old_node.namespace.run(["nft", "list", "table", "ip", "knft"]).stdout


def _cleanup_without_programs(old_node: OldNode, tmp_path: Path, *programs: str) -> subprocess.CompletedProcess[str]:
    """Run a cleanup on a machine without these programs: an empty file is mounted over each of them."""
    hide = "".join(f'for file in /usr/sbin/{name}*; do mount --bind "$0" "$file"; done; ' for name in programs)
    empty = tmp_path / "empty"
    empty.touch(mode=0o644)
    command = ["unshare", "-m", "sh", "-c", hide + 'exec "$@"', str(empty), *KNFT, "cleanup", "--kube-proxy", "all"]
    return old_node.namespace.run(command, check=False)


def test_missing_programs_are_skipped_with_a_message(old_node: OldNode, tmp_path: Path) -> None:
    done = _cleanup_without_programs(old_node, tmp_path, "iptables", "ip6tables", "xtables", "ipset")
    assert (done.returncode, done.stderr) == (0, "")
    assert "iptables: skipped, not installed\n" in done.stdout
    assert "ipsets: skipped, ipset is not installed\n" in done.stdout


def test_ipvs_is_skipped_with_a_message_if_the_kernel_lacks_it(old_node: OldNode) -> None:
    output = old_node.cleanup("ipvs")
    assert output.startswith("virtual servers: skipped, IPVS is not loaded\n")


def test_error_of_one_program_is_printed_and_the_rest_is_removed(old_node: OldNode, tmp_path: Path) -> None:
    """The restore of one backend fails: the rules of the other one and the tables are removed, and the status is 1."""
    old_node.add_iptables_mode("nft", "legacy")
    old_node.add_nftables_mode()
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho 'iptables-restore: invalid line 3' >&2\nexit 4\n")
    broken.chmod(0o755)
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "iptables-legacy-restore").symlink_to(broken)
    command = ["env", f"PATH={folder}:/usr/sbin:/usr/bin:/sbin:/bin", *KNFT, "cleanup", "--kube-proxy", "all"]
    done = old_node.namespace.run(command, check=False)
    assert done.returncode == 1
    assert "knft: iptables-legacy-restore -w 10 --noflush: iptables-restore: invalid line 3\n" in done.stderr
    assert "cannot remove all of kube-proxy's leftovers: 1 failure, see above; run the command again" in done.stderr
    remaining = {name for name, text in old_node.rules().items() if KUBE_PROXY_CHAIN.search(text)}
    assert remaining == {"iptables-legacy"}
    assert old_node.tables() == set()
