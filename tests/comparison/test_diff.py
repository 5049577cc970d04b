"""``knft diff --live``: what a node has in force, beside what knft would have, or has."""

import os
from pathlib import Path

import pytest

from tests.comparison.examples import DIFF, EXAMPLES, NODE, in_force, legacy_programs, load_iptables
from tests.support.knft_command import KNFT, knft
from tests.support.lab.namespace import Namespace

pytestmark = pytest.mark.kernel
_A_RULE = "-A KUBE-SERVICES -d 10.96.0.10/32 -p tcp -m comment --comment"


def test_kube_proxys_rules_are_compared_and_left_as_they_are(served: Namespace) -> None:
    """Packets fare alike, or differ by intent; not a byte of the machine's rules has changed."""
    before = in_force(served)
    done = served.run(DIFF, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "kube-proxy on this machine (iptables-nft, ip6tables-nft)" in done.stdout
    assert in_force(served) == before


def test_a_rule_that_is_missing_makes_a_difference(served: Namespace) -> None:
    (line,) = _rules(served, "iptables-nft-save", _A_RULE)
    served.run(["sh", "-e"], stdin=f"iptables-nft -t nat -D {line.removeprefix('-A ')}")
    done = served.run(DIFF, check=False)
    assert done.returncode == 1
    assert "shop/frontend:http" in done.stdout


def test_without_manifests_the_other_side_is_knfts_own_table(served: Namespace) -> None:
    """And where there is none, that is said."""
    alone = served.run([*KNFT, "diff", "--live"], check=False)
    assert (alone.returncode, alone.stdout) == (2, "")
    assert "this machine has no table of knft" in alone.stderr
    knft(served, "run", "--once", "--manifests", str(EXAMPLES), *NODE)
    both = served.run([*KNFT, "diff", "--live"], check=False)
    assert both.returncode == 0, both.stdout + both.stderr
    assert "knft on this machine" in both.stdout


def test_knfts_own_table_is_compared_with_manifests_where_kube_proxy_is_gone(node: Namespace) -> None:
    knft(node, "run", "--once", "--manifests", str(EXAMPLES), *NODE)
    assert node.run(DIFF, check=False).returncode == 0
    node.run(["nft", "delete element ip knft service-ips { 10.96.0.10 . tcp . 80 }"])
    done = node.run(DIFF, check=False)
    assert done.returncode == 1
    assert "shop/frontend:http" in done.stdout


def test_a_node_without_any_of_both_has_nothing_to_compare(node: Namespace) -> None:
    """Looking makes no table."""
    before = in_force(node)
    done = node.run(DIFF, check=False)
    assert done.returncode == 2
    assert "no rules of kube-proxy and no table of knft" in done.stderr
    assert in_force(node) == before
    assert node.run(["nft", "list", "tables"]).stdout == ""


def test_rules_of_iptables_legacy_are_found_where_they_are(node: Namespace, tmp_path: Path) -> None:
    load_iptables(node, legacy_programs(tmp_path))
    before = in_force(node)
    done = node.run(DIFF, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "kube-proxy on this machine (iptables-legacy, ip6tables-legacy)" in done.stdout
    assert in_force(node) == before


def test_rules_in_both_backends_are_said_to_be_there_twice(served: Namespace, tmp_path: Path) -> None:
    """The first backend's decide: the connection is translated once."""
    load_iptables(served, legacy_programs(tmp_path))
    done = served.run(DIFF, check=False)
    assert "kube-proxy's chains are in iptables-nft and iptables-legacy and ip6tables-nft" in done.stdout
    assert done.returncode == 0, done.stdout


def test_rules_of_other_programs_are_on_both_sides(served: Namespace) -> None:
    """The host's policy DROP applies to both sides; tables of other programs are named, not compared."""
    served.run(["iptables-nft", "-P", "FORWARD", "DROP"])
    served.run(["nft", "add table inet firewalld"])
    done = served.run(DIFF, check=False)
    assert "forwarding rules" in done.stdout
    assert "tables of other programs were not read: inet firewalld" in done.stdout
    assert done.returncode == 0, done.stdout


def test_missing_programs_are_warnings(node: Namespace, tmp_path: Path) -> None:
    """A missing program is a warning, not an error."""
    knft(node, "run", "--once", "--manifests", str(EXAMPLES), *NODE)
    code = "from knft.kernel import programs\nprograms._ADMIN_FOLDERS = ()\nfrom knft.cli.main import main\nmain()"
    command = ["env", f"PATH={tmp_path}", KNFT[0], "-c", code, *DIFF[len(KNFT) :]]
    done = node.run(command, check=False)
    assert "iptables is not installed; its rules were not read" in done.stdout


def test_missing_capability_is_an_error(served: Namespace) -> None:
    done = served.run(["setpriv", "--bounding-set", "-all", "--inh-caps", "-all", *DIFF], check=False)
    assert done.returncode == 2
    assert "CAP_NET_ADMIN is missing" in done.stderr


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--watch"], "--watch: it needs --live"),
        (["--live", "--watch", "-o", "html"], "--watch: it cannot be used with -o html"),
        (["--live", "--iptables-save", os.devnull], "--iptables-save: it cannot be used with --live"),
        (["--live", "--masquerade-all"], "--masquerade-all: it needs -f"),
        (["--live", "-f", str(EXAMPLES)], "--node: it is required with -f"),
        ([], "-f: name the manifests"),
    ],
)
def test_contradicting_flags_are_rejected(node: Namespace, flags: list[str], words: str) -> None:
    done = node.run([*KNFT, "diff", *flags], check=False)
    assert done.returncode == 2
    assert words in done.stderr


def _rules(node: Namespace, program: str, beginning: str) -> list[str]:
    return [line for line in node.run([program]).stdout.splitlines() if line.startswith(beginning)]
