"""``knft diff --live``: kube-proxy's rules on a node, compared with knft's rendered or loaded rules."""

import os
from pathlib import Path

import pytest

from tests.support.knft_command import KNFT, knft
from tests.support.lab.namespace import Namespace
from tests.support.loaded_examples import DIFF, EXAMPLES, NODE, legacy_programs, load_iptables, machine_state

pytestmark = pytest.mark.kernel
_RULE_START = "-A KUBE-SERVICES -d 10.96.0.10/32 -p tcp -m comment --comment"


def test_live_kube_proxy_rules_are_compared_and_unchanged(kube_proxy_node: Namespace) -> None:
    """All packets have the same outcome, or an expected difference."""
    before = machine_state(kube_proxy_node)
    done = kube_proxy_node.run(DIFF, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "kube-proxy on this machine (iptables-nft, ip6tables-nft)" in done.stdout
    assert machine_state(kube_proxy_node) == before


def test_missing_rule_is_a_difference(kube_proxy_node: Namespace) -> None:
    (line,) = _rules(kube_proxy_node, "iptables-nft-save", _RULE_START)
    kube_proxy_node.run(["sh", "-e"], stdin=f"iptables-nft -t nat -D {line.removeprefix('-A ')}")
    done = kube_proxy_node.run(DIFF, check=False)
    assert done.returncode == 1
    assert "shop/frontend:http" in done.stdout


def test_knfts_live_table_is_compared_if_there_are_no_manifests(kube_proxy_node: Namespace) -> None:
    """Without a table of knft, the command fails."""
    without_table = kube_proxy_node.run([*KNFT, "diff", "--live"], check=False)
    assert (without_table.returncode, without_table.stdout) == (2, "")
    assert "this machine has no knft table" in without_table.stderr
    knft(kube_proxy_node, "run", "--once", "--manifests", str(EXAMPLES), *NODE)
    with_table = kube_proxy_node.run([*KNFT, "diff", "--live"], check=False)
    assert with_table.returncode == 0, with_table.stdout + with_table.stderr
    assert "knft on this machine" in with_table.stdout


def test_knfts_live_table_is_compared_with_manifests_if_kube_proxy_has_no_rules(node: Namespace) -> None:
    knft(node, "run", "--once", "--manifests", str(EXAMPLES), *NODE)
    assert node.run(DIFF, check=False).returncode == 0
    node.run(["nft", "delete element ip knft service-ips { 10.96.0.10 . tcp . 80 }"])
    done = node.run(DIFF, check=False)
    assert done.returncode == 1
    assert "shop/frontend:http" in done.stdout


def test_node_without_rules_is_an_error(node: Namespace) -> None:
    """The comparison makes no table."""
    before = machine_state(node)
    done = node.run(DIFF, check=False)
    assert done.returncode == 2
    assert "no kube-proxy rules and no knft table" in done.stderr
    assert machine_state(node) == before
    assert node.run(["nft", "list", "tables"]).stdout == ""


def test_iptables_legacy_rules_are_compared(node: Namespace, tmp_path: Path) -> None:
    load_iptables(node, legacy_programs(tmp_path))
    before = machine_state(node)
    done = node.run(DIFF, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "kube-proxy on this machine (iptables-legacy, ip6tables-legacy)" in done.stdout
    assert machine_state(node) == before


def test_rules_in_both_backends_give_a_note(kube_proxy_node: Namespace, tmp_path: Path) -> None:
    """The rules of the first backend decide, since a connection is translated only once."""
    load_iptables(kube_proxy_node, legacy_programs(tmp_path))
    done = kube_proxy_node.run(DIFF, check=False)
    assert "kube-proxy's chains are in iptables-nft and iptables-legacy and ip6tables-nft" in done.stdout
    assert done.returncode == 0, done.stdout


def test_rules_of_other_programs_apply_to_both_sides(kube_proxy_node: Namespace) -> None:
    """The host's policy DROP applies to both sides; tables of other programs are named, not compared."""
    kube_proxy_node.run(["iptables-nft", "-P", "FORWARD", "DROP"])
    kube_proxy_node.run(["nft", "add table inet firewalld"])
    done = kube_proxy_node.run(DIFF, check=False)
    assert "forwarding rules" in done.stdout
    assert "tables of other programs were not read: inet firewalld" in done.stdout
    assert done.returncode == 0, done.stdout


def test_missing_programs_are_warnings(node: Namespace, tmp_path: Path) -> None:
    knft(node, "run", "--once", "--manifests", str(EXAMPLES), *NODE)
    code = "from knft.kernel import programs\nprograms._ADMIN_FOLDERS = ()\nfrom knft.cli.main import main\nmain()"
    command = ["env", f"PATH={tmp_path}", KNFT[0], "-c", code, *DIFF[len(KNFT) :]]
    done = node.run(command, check=False)
    assert "iptables is not installed; its rules were not read" in done.stdout


def test_missing_capability_is_an_error(kube_proxy_node: Namespace) -> None:
    done = kube_proxy_node.run(["setpriv", "--bounding-set", "-all", "--inh-caps", "-all", *DIFF], check=False)
    assert done.returncode == 2
    assert "CAP_NET_ADMIN is missing" in done.stderr


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--watch"], "--watch requires --live"),
        (["--live", "--watch", "-o", "html"], "--watch cannot be used with -o html"),
        (["--live", "--iptables-save", os.devnull], "--iptables-save cannot be used with --live"),
        (["--live", "--masquerade-all"], "--masquerade-all requires -f"),
        (["--live", "-f", str(EXAMPLES)], "--node is required with -f"),
        ([], "-f is required: name manifests"),
    ],
)
def test_contradicting_flags_are_rejected(node: Namespace, flags: list[str], message: str) -> None:
    done = node.run([*KNFT, "diff", *flags], check=False)
    assert done.returncode == 2
    assert message in done.stderr


def _rules(node: Namespace, program: str, prefix: str) -> list[str]:
    return [line for line in node.run([program]).stdout.splitlines() if line.startswith(prefix)]
