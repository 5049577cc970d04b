"""``knft run`` on a node that kube-proxy served: it warns with what it found, and goes on."""

import stat
from pathlib import Path

import pytest

from knft.takeover.messages import leftover_warning
from knft.takeover.names import Mode
from tests.support.knft_command import KNFT, NODE_FLAG, knft, sync_once
from tests.support.knft_run import KnftRun
from tests.support.processes import library_processes
from tests.takeover.conftest import OldNode

pytestmark = pytest.mark.kernel
EXAMPLES = Path(__file__).parent.parent.parent / "examples"


def _warnings(log: str) -> list[str]:
    return [line.partition(" WARNING ")[2] for line in log.splitlines() if " WARNING " in line]


def test_one_line_for_each_mode_with_counts_and_what_to_do(old_node: OldNode) -> None:
    old_node.add_others()
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


def test_one_that_goes_on_finds_what_takes_more_than_it_keeps(old_node: OldNode, tmp_path: Path) -> None:
    """iptables-legacy-save needs CAP_NET_RAW, which a daemon gives up; nobody is left behind who has it."""
    old_node.add_iptables_mode("legacy")
    with KnftRun(old_node.namespace, tmp_path) as daemon:
        daemon.wait_until(lambda: "WARNING" in daemon.log_text())
        daemon.wait_until(lambda: _children(daemon.process.pid) == set(library_processes(daemon.process.pid)))
        assert _warnings(daemon.log_text()) == [
            leftover_warning(Mode.IPTABLES, ["18 chains in iptables-legacy", "18 chains in ip6tables-legacy"])
        ]


def _children(pid: int) -> set[int]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return {int(child) for task in tasks for child in (task / "children").read_text().split()}


def test_nothing_is_said_where_only_others_are(old_node: OldNode) -> None:
    old_node.add_others()
    before = old_node.state()
    assert _warnings(sync_once(old_node.namespace, EXAMPLES)) == []
    knft(old_node.namespace, "cleanup")
    assert before == old_node.state()


def test_what_cannot_be_read_is_said_and_never_stops_it(old_node: OldNode, tmp_path: Path) -> None:
    """iptables-save fails, for one family of one backend: the others are looked at, and knft serves."""
    old_node.add_iptables_mode("nft")
    save = tmp_path / "ip6tables-nft-save"
    save.write_text("#!/bin/sh\necho 'no such luck' >&2\nexit 1\n")
    save.chmod(stat.S_IRWXU)
    path = f"PATH={tmp_path}:/usr/sbin:/usr/bin:/sbin:/bin"
    command = ["env", path, *KNFT, "run", "--once", "--manifests", str(EXAMPLES), *NODE_FLAG]
    done = old_node.namespace.run(command)
    first, second = _warnings(done.stderr)
    assert first == "cannot look for kube-proxy's leftovers: ip6tables-nft-save: no such luck"
    assert "(18 chains in iptables-nft)" in second
    assert old_node.tables() == {"table ip knft", "table ip6 knft"}
