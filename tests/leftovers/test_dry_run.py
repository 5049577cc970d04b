"""``knft cleanup --dry-run`` removes nothing, and lists exactly what a following cleanup removes."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.knft_command import knft, sync_once
from tests.support.knft_run import KnftRun
from tests.support.old_node import BACKENDS, OldNode

pytestmark = pytest.mark.kernel

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
WOULD_BE_REMOVED = ": would be removed"
SUMMARY = re.compile(r"(?P<what>.*): (?P<counts>[0-9].*) would be removed")


def _objects(node: OldNode) -> set[str]:
    """Return all tables, rules and chains of iptables, and ipsets, by the names that --dry-run prints."""
    found = {f"table {table.removeprefix('table ')}" for table in node.tables()}
    for backend, text in node.rules().items():
        found |= set(_iptables_objects(backend, text))
    return found | {f"ipset {name}" for name in node.set_names()}


def _iptables_objects(backend: str, text: str) -> Iterator[str]:
    table = ""
    for line in text.splitlines():
        if line.startswith("*"):
            table = line[1:]
        elif line.startswith(":"):
            yield f"{backend}: chain in table {table}: {line[1:].split()[0]}"
        elif line.startswith("["):
            rule = line.partition("] -A ")[2]
            if not rule.startswith("KUBE-"):  # The rules of a chain are not listed: they go with it.
                yield f"{backend}: rule in table {table}: {rule}"


def _listed(output: str) -> set[str]:
    lines = [line for line in output.splitlines() if not SUMMARY.fullmatch(line)]
    found = {line.removesuffix(WOULD_BE_REMOVED) for line in lines if line.endswith(WOULD_BE_REMOVED)}
    return {re.sub(r", with [0-9].*$", "", each) for each in found}


def test_dry_run_lists_what_cleanup_removes_of_kube_proxy(old_node: OldNode) -> None:
    old_node.add_foreign_rules()
    old_node.add_iptables_mode(*BACKENDS)
    old_node.add_ipvs_mode("nft")
    old_node.add_nftables_mode()
    state, before = old_node.state(), _objects(old_node)
    planned = old_node.cleanup("all", "--dry-run")
    assert old_node.state() == state
    done = old_node.cleanup("all")
    assert _listed(planned) == before - _objects(old_node)
    summaries = filter(None, map(SUMMARY.fullmatch, planned.splitlines()))
    counts = [f"{found['what']}: {found['counts']} removed" for found in summaries]
    assert set(counts) <= set(done.splitlines())
    assert len(counts) == len(old_node.rules()) + 1


def _contents(node: OldNode, family: str) -> dict[str, int]:
    """Return how many objects of each kind knft's table has, counted in nft's text."""
    lines = node.namespace.run(["nft", "-a", "list", "table", family, "knft"]).stdout.splitlines()[1:]
    with_handle = [line.split()[0] for line in lines if " # handle " in line]
    counts = {kind: with_handle.count(kind) for kind in ("chain", "set", "map")}
    return {**counts, "rule": len(with_handle) - sum(counts.values())}


def test_dry_run_lists_what_cleanup_removes_of_knft(old_node: OldNode) -> None:
    old_node.add_foreign_rules()
    old_node.add_nftables_mode()
    sync_once(old_node.namespace, EXAMPLES)
    state, before = old_node.state(), _objects(old_node)
    counted = {family: _contents(old_node, family) for family in ("ip", "ip6")}
    planned = knft(old_node.namespace, "cleanup", "--dry-run").stdout
    assert old_node.state() == state
    assert knft(old_node.namespace, "cleanup").stdout == "table ip knft: removed\ntable ip6 knft: removed\n"
    assert _listed(planned) == before - _objects(old_node)
    for line, (family, counts) in zip(planned.splitlines(), counted.items(), strict=True):
        assert re.fullmatch(f"table {family} knft, with [0-9].*: would be removed", line)
        assert {kind: int(count) for count, kind in re.findall(r"([0-9]+) (chain|rule|set|map)s?", line)} == counts
        assert re.search(r", [1-9][0-9]* elements", line)
    nothing = knft(old_node.namespace, "cleanup", "--dry-run").stdout
    assert nothing == "table ip knft: not found\ntable ip6 knft: not found\n"


def test_dry_run_is_possible_while_knft_runs(old_node: OldNode, tmp_path: Path) -> None:
    with KnftRun(old_node.namespace, tmp_path):
        note, *tables = knft(old_node.namespace, "cleanup", "--dry-run").stdout.splitlines()
        assert [re.sub(", with [0-9].*: ", ": ", each) for each in tables] == [
            "table ip knft: would be removed",
            "table ip6 knft: would be removed",
        ]
        assert note.startswith("another knft process runs in this network namespace")
        assert note.endswith("; stop it before the cleanup, because it would create the tables again")
        assert knft(old_node.namespace, "cleanup", check=False).returncode == 1
