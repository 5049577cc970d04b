"""``knft run`` on a node with leftovers of kube-proxy: it warns about them and serves."""

import json
import stat
from pathlib import Path

import pytest

from knft.leftovers.messages import leftover_warning
from knft.proxy_mode import Mode
from tests.support.knft_command import KNFT, NODE_FLAG, knft, sync_once
from tests.support.knft_run import KnftRun
from tests.support.log_lines import messages
from tests.support.old_node import OldNode
from tests.support.processes import child_processes, worker_processes

pytestmark = pytest.mark.kernel
EXAMPLES = Path(__file__).parent.parent.parent / "examples"


def _warnings(log: str) -> list[str]:
    """Return the warnings about kube-proxy; the examples' Node has an address that the machine lacks."""
    return [warning for warning in messages(log, "W") if "kube-proxy" in warning]


def test_leftovers_of_each_mode_give_one_warning(old_node: OldNode) -> None:
    old_node.add_foreign_rules()
    old_node.add_iptables_mode("nft")
    old_node.add_ipvs_mode("legacy")
    old_node.add_nftables_mode()
    before = old_node.rules()
    assert _warnings(sync_once(old_node.namespace, EXAMPLES)) == [
        leftover_warning(Mode.IPTABLES, ["18 chains in iptables-nft", "18 chains in ip6tables-nft"]),
        leftover_warning(Mode.IPVS, ["11 chains in iptables-legacy", "11 chains in ip6tables-legacy", "34 ipsets"]),
        leftover_warning(Mode.NFTABLES, ["ip kube-proxy", "ip6 kube-proxy"]),
    ]
    assert before == old_node.rules()


def test_daemon_without_net_raw_finds_iptables_legacy_rules(old_node: OldNode, tmp_path: Path) -> None:
    """iptables-legacy-save needs CAP_NET_RAW, which the daemon drops; no child process with it remains."""
    old_node.add_iptables_mode("legacy")
    with KnftRun(old_node.namespace, tmp_path) as daemon:
        daemon.wait_until(lambda: _warnings(daemon.log_text()) != [])
        daemon.wait_until(lambda: set(child_processes(daemon.process.pid)) == set(worker_processes(daemon.process.pid)))
        assert _warnings(daemon.log_text()) == [
            leftover_warning(Mode.IPTABLES, ["18 chains in iptables-legacy", "18 chains in ip6tables-legacy"])
        ]


def test_status_tells_what_kube_proxy_left_until_it_is_removed(old_node: OldNode, tmp_path: Path) -> None:
    """``knft status`` looks itself, when it is called, and with its own capabilities."""
    old_node.add_iptables_mode("legacy")
    old_node.add_nftables_mode()
    with KnftRun(old_node.namespace, tmp_path):
        found = [
            leftover_warning(Mode.IPTABLES, ["18 chains in iptables-legacy", "18 chains in ip6tables-legacy"]),
            leftover_warning(Mode.NFTABLES, ["ip kube-proxy", "ip6 kube-proxy"]),
        ]
        answer = json.loads(knft(old_node.namespace, "status", "-o", "json").stdout)
        assert answer["leftovers"] == {"found": found, "errors": []}
        assert f"\nleftovers     {found[0]}\n              {found[1]}\n" in knft(old_node.namespace, "status").stdout
        for mode in ("iptables", "nftables"):
            assert f"`knft cleanup --kube-proxy {mode}`" in " ".join(found)
            knft(old_node.namespace, "cleanup", "--kube-proxy", mode)
        assert "\nleftovers     nothing of kube-proxy\n" in knft(old_node.namespace, "status").stdout


def test_foreign_rules_give_no_warning(old_node: OldNode) -> None:
    old_node.add_foreign_rules()
    before = old_node.state()
    assert _warnings(sync_once(old_node.namespace, EXAMPLES)) == []
    knft(old_node.namespace, "cleanup")
    assert before == old_node.state()


def test_unreadable_rules_give_a_warning_and_knft_syncs(old_node: OldNode, tmp_path: Path) -> None:
    """iptables-save fails for one family of one backend: knft reads the others and syncs."""
    old_node.add_iptables_mode("nft")
    save = tmp_path / "ip6tables-nft-save"
    save.write_text("#!/bin/sh\necho 'cannot read rules' >&2\nexit 1\n")
    save.chmod(stat.S_IRWXU)
    path = f"PATH={tmp_path}:/usr/sbin:/usr/bin:/sbin:/bin"
    command = ["env", path, *KNFT, "run", "--once", "--manifests", str(EXAMPLES), *NODE_FLAG]
    done = old_node.namespace.run(command)
    first, second = _warnings(done.stderr)
    assert first == "cannot look for kube-proxy's leftovers: ip6tables-nft-save: cannot read rules"
    assert "(18 chains in iptables-nft)" in second
    assert old_node.tables() == {"table ip knft", "table ip6 knft"}
