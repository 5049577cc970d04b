"""``knft cleanup --dry-run`` removes nothing, and lists exactly what a following cleanup removes."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.leftovers.conftest import BACKENDS, OldNode
from tests.support.knft_command import knft, sync_once
from tests.support.knft_run import KnftRun

pytestmark = pytest.mark.kernel

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
WOULD_BE_REMOVED = ": would be removed"
SUMMARY = re.compile(r"(?P<what>.*): (?P<counts>[0-9].*) would be removed")


def _objects(node: OldNode) -> set[str]:
    """Return all tables, and all chains, rules, sets and maps in them, by the names that --dry-run prints."""
    found = {f"table {table.removeprefix('table ')}" for table in node.tables()}
    for table in node.tables():
        family, name = table.split()[1:]
        listing = node.namespace.run(["nft", "-j", "-t", "list", *table.split()]).stdout
        pairs = [pair for item in json.loads(listing)["nftables"] for pair in item.items()]
        found |= {f"{kind} {family} {name} {value['name']}" for kind, value in pairs if kind in ("chain", "set", "map")}
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
    return {re.sub(r", with [0-9]+ (rule|element)s?$", "", each) for each in found}


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


def test_dry_run_lists_what_cleanup_removes_of_knft(old_node: OldNode) -> None:
    old_node.add_foreign_rules()
    old_node.add_nftables_mode()
    sync_once(old_node.namespace, EXAMPLES)
    state, before = old_node.state(), _objects(old_node)
    planned = knft(old_node.namespace, "cleanup", "--dry-run").stdout
    assert old_node.state() == state
    assert knft(old_node.namespace, "cleanup").stdout == "table ip knft: removed\ntable ip6 knft: removed\n"
    assert _listed(planned) == before - _objects(old_node)
    assert re.search(r"^map ip knft service-ips, with [1-9][0-9]* elements: would be removed$", planned, re.MULTILINE)
    nothing = knft(old_node.namespace, "cleanup", "--dry-run").stdout
    assert nothing == "table ip knft: not found\ntable ip6 knft: not found\n"


def test_dry_run_says_that_a_running_knft_prevents_the_cleanup(old_node: OldNode, tmp_path: Path) -> None:
    with KnftRun(old_node.namespace, tmp_path):
        done = knft(old_node.namespace, "cleanup", "--dry-run", check=False)
        assert done.returncode == 1
        assert "another knft process runs in this network namespace" in done.stderr
        assert "table ip knft: would be removed" in knft(old_node.namespace, "cleanup", "--dry-run", "--force").stdout
