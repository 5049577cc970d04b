"""``knft cleanup --kube-proxy``: exactly kube-proxy's leftovers go, with the real tools on the real kernel."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.support.knft_command import KNFT, knft
from tests.support.lab.links import netlink
from tests.takeover import leftovers
from tests.takeover.conftest import OldNode

pytestmark = pytest.mark.kernel
KUBE_PROXYS = re.compile(r"KUBE-(?!FIREWALL|KUBELET|MARK-DROP|IPTABLES-HINT|SVCX|SVC-1|SVC-NOT|CLUSTER-IP-MINE)")
BOTH = ("nft", "legacy")
MINE = ("MINEinet", "MINEinet6")


def test_all_that_is_kube_proxys_goes_and_all_else_stays_byte_for_byte(old_node: OldNode) -> None:
    """Both backends, both families, every mode at once; foreign counters and policies too."""
    old_node.add_others()
    before = old_node.state()
    old_node.add_iptables_mode(*BOTH)
    old_node.add_ipvs_mode(*BOTH)
    old_node.add_nftables_mode()
    assert all(KUBE_PROXYS.search(text) for text in old_node.rules().values())

    said = old_node.cleanup("all")
    assert before == old_node.state()
    for backend in old_node.rules():
        assert re.search(rf"^{backend}: \d+ chains and \d+ jumps removed$", said, re.MULTILINE), said
    assert "ipsets: 34 removed" in said
    assert "table ip kube-proxy: removed\ntable ip6 kube-proxy: removed\n" in said


def test_a_second_cleanup_says_that_nothing_was_there(old_node: OldNode) -> None:
    old_node.add_others()
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
        "ipsets: none found\n"
        "table ip kube-proxy: not found\n"
        "table ip6 kube-proxy: not found\n"
    )
    assert before == old_node.state()


def test_an_empty_machine_stays_empty(old_node: OldNode) -> None:
    """Looking makes nothing: no table, no built-in chain."""
    old_node.cleanup("all")
    assert old_node.namespace.run(["nft", "list", "ruleset"]).stdout == ""
    assert set(old_node.rules().values()) == {""}


@pytest.mark.parametrize("backend", BOTH)
def test_the_iptables_mode_alone(old_node: OldNode, backend: str) -> None:
    """In one backend; the IPVS mode's leftovers in the other, and the tables, stay."""
    (other,) = set(BOTH) - {backend}
    old_node.add_others()
    old_node.add_ipvs_mode(other)
    old_node.add_nftables_mode()
    before = old_node.state()
    old_node.add_iptables_mode(backend)
    assert before != old_node.state()
    old_node.cleanup("iptables")
    assert before == old_node.state()


@pytest.mark.parametrize("backend", BOTH)
def test_the_ipvs_mode_alone(old_node: OldNode, backend: str) -> None:
    """Its sets too, also where the kernel frees the rules that named them a moment later."""
    (other,) = set(BOTH) - {backend}
    old_node.add_others()
    old_node.add_iptables_mode(other)
    old_node.add_nftables_mode()
    before = old_node.state()
    old_node.add_ipvs_mode(backend)
    old_node.cleanup("ipvs")
    assert before == old_node.state()


def test_the_nftables_mode_alone(old_node: OldNode) -> None:
    old_node.add_others()
    old_node.add_iptables_mode("nft")
    old_node.add_ipvs_mode("legacy")
    before = old_node.state()
    old_node.add_nftables_mode()
    assert old_node.cleanup("nftables") == "table ip kube-proxy: removed\ntable ip6 kube-proxy: removed\n"
    assert before == old_node.state()


@pytest.mark.parametrize("backend", BOTH)
def test_two_modes_in_one_backend_go_one_after_the_other(old_node: OldNode, backend: str) -> None:
    """Chains that both modes make stay until the second goes, without the rules that held the first one's sets."""
    old_node.add_others()
    before = old_node.state()
    old_node.add_ipvs_mode(backend)
    old_node.add_iptables_mode(backend)

    old_node.cleanup("ipvs")
    between = old_node.rules()[f"iptables-{backend}"]
    assert "KUBE-NODE-PORT " not in between
    assert "--match-set KUBE" not in between
    assert '-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES' in between
    assert re.search(r"-A KUBE-SERVICES .*-j KUBE-SVC-", between)
    assert old_node.set_names() == {*MINE, "KUBE-CLUSTER-IP-MINE"}
    old_node.cleanup("iptables")
    assert before == old_node.state()


@pytest.mark.parametrize("backend", BOTH)
def test_the_other_order_too(old_node: OldNode, backend: str) -> None:
    old_node.add_others()
    before = old_node.state()
    old_node.add_ipvs_mode(backend)
    old_node.add_iptables_mode(backend)
    said = old_node.cleanup("iptables")
    assert f"iptables-{backend}: kept 5 chains that another mode of kube-proxy uses too\n" in said
    between = old_node.rules()[f"iptables-{backend}"]
    chains = set(re.findall(r"^:(KUBE-\S+)|-[jg] (KUBE-\S+)", between, re.MULTILINE))
    names = {name for pair in chains for name in pair}
    assert not any(
        re.match(r"KUBE-(SVC|SEP|EXT|FW)-[A-Z2-7]{16}|KUBE-(NODEPORTS|PROXY-CANARY)", name) for name in names
    )
    assert "--match-set KUBE-CLUSTER-IP" in between
    old_node.cleanup("ipvs")
    assert before == old_node.state()


@pytest.mark.parametrize("backend", BOTH)
def test_what_somebody_elses_chain_leads_to_stays_and_is_named(old_node: OldNode, backend: str) -> None:
    """Such as the CNI's portmap plugin with ``externalSetMarkChain``; jumps out of built-in chains go all the same."""
    old_node.add_others()
    old_node.add_iptables_mode(backend)
    theirs = "*nat\n-A CNI-HOSTPORT-DNAT -p tcp --dport 8443 -j KUBE-MARK-MASQ\n-A OUTPUT -j KUBE-MARK-MASQ\nCOMMIT\n"
    old_node.restore(backend, leftovers.IPV4, theirs)
    said = old_node.cleanup("iptables")
    assert f"iptables-{backend}: kept nat KUBE-MARK-MASQ, since a chain of another program jumps to it\n" in said
    left = {line for line in old_node.rules()[f"iptables-{backend}"].splitlines() if "KUBE-MARK-MASQ" in line}
    assert left == {
        ":KUBE-MARK-MASQ - [0:0]",
        "[0:0] -A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000",
        "[0:0] -A CNI-HOSTPORT-DNAT -p tcp -m tcp --dport 8443 -j KUBE-MARK-MASQ",
    }


def test_a_set_that_somebody_elses_rule_names_stays_and_is_named(old_node: OldNode) -> None:
    old_node.add_others()
    old_node.add_ipvs_mode("nft")
    theirs = "*filter\n-A DOCKER-USER -m set --match-set KUBE-CLUSTER-IP dst,dst -j RETURN\nCOMMIT\n"
    old_node.restore("nft", leftovers.IPV4, theirs)
    said = old_node.cleanup("ipvs")
    assert "ipsets: 33 removed\n" in said
    assert "ipset KUBE-CLUSTER-IP: kept, since a rule of another program uses it\n" in said
    assert old_node.set_names() == {*MINE, "KUBE-CLUSTER-IP-MINE", "KUBE-CLUSTER-IP"}


def test_a_device_of_that_name_but_another_kind_stays(old_node: OldNode) -> None:
    with netlink(old_node.namespace) as link:
        link.add_bridge("kube-ipvs0", "02:00:00:00:00:09")
    said = old_node.cleanup("ipvs")
    assert "device kube-ipvs0: kept, its kind is bridge, so it is not kube-proxy's\n" in said
    assert "kube-ipvs0" in old_node.namespace.run(["cat", "/proc/net/dev"]).stdout


def test_cleanup_alone_and_knfts_tables_know_nothing_of_each_other(old_node: OldNode) -> None:
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


def _without(old_node: OldNode, tmp_path: Path, *programs: str) -> subprocess.CompletedProcess[str]:
    """Run a cleanup on a machine without these programs: an empty folder is mounted over theirs but for the rest."""
    hide = "".join(f'for file in /usr/sbin/{name}*; do mount --bind "$0" "$file"; done; ' for name in programs)
    empty = tmp_path / "empty"
    empty.touch(mode=0o644)
    command = ["unshare", "-m", "sh", "-c", hide + 'exec "$@"', str(empty), *KNFT, "cleanup", "--kube-proxy", "all"]
    return old_node.namespace.run(command, check=False)


def test_missing_programs_are_said_and_are_no_errors(old_node: OldNode, tmp_path: Path) -> None:
    done = _without(old_node, tmp_path, "iptables", "ip6tables", "xtables", "ipset")
    assert (done.returncode, done.stderr) == (0, "")
    assert "iptables: skipped, not installed\n" in done.stdout
    assert "ipsets: skipped, ipset is not installed\n" in done.stdout


def test_ipvs_asked_for_on_a_kernel_without_it_is_said_and_is_no_error(old_node: OldNode) -> None:
    said = old_node.cleanup("ipvs")
    assert said.startswith("virtual servers: skipped, IPVS is not loaded\n")


def test_what_a_program_refuses_is_said_in_its_words_and_the_rest_goes(old_node: OldNode, tmp_path: Path) -> None:
    """One backend fails; the other backends' rules, and the tables, go all the same; status 1."""
    old_node.add_iptables_mode("nft", "legacy")
    old_node.add_nftables_mode()
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho 'iptables-restore: the moon is full' >&2\nexit 4\n")
    broken.chmod(0o755)
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "iptables-legacy-restore").symlink_to(broken)
    command = ["env", f"PATH={folder}:/usr/sbin:/usr/bin:/sbin:/bin", *KNFT, "cleanup", "--kube-proxy", "all"]
    done = old_node.namespace.run(command, check=False)
    assert done.returncode == 1
    assert "knft: iptables-legacy-restore -w 10 --noflush: iptables-restore: the moon is full\n" in done.stderr
    assert "could not remove all of kube-proxy's leftovers: 1 failure, see above" in done.stderr
    left = {name for name, text in old_node.rules().items() if KUBE_PROXYS.search(text)}
    assert left == {"iptables-legacy"}
    assert old_node.tables() == set()
