"""Tests that the real programs load the rules of the golden files and print equal rules.

All files are loaded in both families and by both backends. If a file does not show a family, the output of the command
is loaded. nfacct matches and rules with ipvs matches are omitted, which not every kernel supports; the virtual machine
loads the latter.
"""

import itertools
from pathlib import Path

import pytest

from knft.families import Family
from tests.compat.golden import FOLDER, Golden, read
from tests.compat.golden_steps import GOLDENS, part, restore_sets, restored_rules, steps_of, sync_of, text_of
from tests.compat.parsed_sets import ParsedSet, parse_ipsets
from tests.support.iptables_programs import (
    BACKENDS,
    each_family_and_backend,
    load,
    namespace,
    run_script,
    saved_tables,
    without_empty_built_in_chains,
)
from tests.support.lab.namespace import Namespace
from tests.support.parsed_rules import parse_tables

pytestmark = pytest.mark.kernel

CASES = [
    pytest.param(golden, family, backend, id=f"{golden.path.stem}-{family.value}-{backend}")
    for golden, family, backend in itertools.product(GOLDENS, Family, BACKENDS)
]
CANARY = "*mangle\n:KUBE-PROXY-CANARY - [0:0]\nCOMMIT\n"
LEFT_BY_CLEANUP = (
    "*nat\n:DOCKER - [0:0]\nCOMMIT\n"
    "*filter\n:INPUT ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n:KUBE-FIREWALL - [0:0]\n"
    "-A INPUT -j KUBE-FIREWALL\n-A OUTPUT -j KUBE-FIREWALL\nCOMMIT\n"
)
"""A foreign chain, the kubelet's chain, and the jumps to the kubelet's chain."""


@pytest.mark.parametrize(("golden", "family", "backend"), CASES)
def test_golden_rules_load_and_read_back_equal(golden: Golden, family: Family, backend: str) -> None:
    steps = list(steps_of(golden, family))
    expected = without_empty_built_in_chains(parse_tables("".join(step.rules for step in steps), family))
    with namespace() as netns:
        for step in steps:
            restore_sets(netns, step.sets)
            load(netns, step.rules, family, backend)
        assert without_empty_built_in_chains(saved_tables(netns, family, backend)) == expected
        assert _saved_sets(netns) == parse_ipsets("".join(step.sets for step in steps))
    assert expected


def _saved_sets(netns: Namespace) -> dict[str, ParsedSet]:
    return parse_ipsets(netns.run(["ipset", "save"]).stdout)


def test_listed_golden_files_have_earlier_state() -> None:
    earlier = {golden.path.stem for golden in GOLDENS if len(list(steps_of(golden, Family.IPV4))) > 1}
    assert {name for name in earlier if not name.startswith("ipvs-document-003")} == {
        "iptables-cleanup",
        "iptables-partial-sync",
        "iptables-repeated-sync",
        "ipvs-document-002-conntrack",
        "ipvs-document-004-conntrack",
        "ipvs-graceful-termination",
    }


@each_family_and_backend
def test_iptables_cleanup_keeps_foreign_chains(tmp_path: Path, family: Family, backend: str) -> None:
    cleanup, start = read(FOLDER / "iptables-cleanup.golden"), read(FOLDER / "iptables-start.golden")
    (existing,) = (section for section in cleanup.sections if section.name == "existing")
    with namespace() as netns:
        for text in (text_of(existing.rules), CANARY):
            load(netns, text, family, backend)
        run_script(netns, part(start, "jumps", family), backend, tmp_path)

        run_script(netns, part(cleanup, "jumps-removed", family), backend, tmp_path)
        load(netns, restored_rules(cleanup, family), family, backend)
        run_script(netns, part(cleanup, "canary-removed", family), backend, tmp_path)
        assert without_empty_built_in_chains(saved_tables(netns, family, backend)) == without_empty_built_in_chains(
            parse_tables(LEFT_BY_CLEANUP, family)
        )


@each_family_and_backend
def test_ipvs_cleanup_keeps_ipv6_sets(tmp_path: Path, family: Family, backend: str) -> None:
    """Tests in the virtual machine cover the other parts: virtual servers, the device, and the kernel module."""
    cleanup, before = read(FOLDER / "ipvs-cleanup.golden"), read(FOLDER / "ipvs-load-balancer.golden")
    sync = sync_of(before, family)
    with namespace() as netns:
        run_script(netns, part(before, "jumps", family), backend, tmp_path)
        restore_sets(netns, sync.sets)
        load(netns, sync.rules, family, backend)

        for name in ("jumps-removed", "chains-removed", "ipset-destroyed"):
            run_script(netns, part(cleanup, name, family), backend, tmp_path)
        assert without_empty_built_in_chains(saved_tables(netns, family, backend)) == {}
        assert _saved_sets(netns) == (parse_ipsets(sync.sets) if family is Family.IPV6 else {})
