"""Tests that the real programs load the rules of the golden files and print equal rules.

All files are loaded in both families and by both backends. If a file does not show a family, the output of the command
is loaded. nfacct matches and rules with ipvs matches are omitted, which not every kernel supports; the virtual machine
loads the latter.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from knft.families import Family
from tests.compat.golden import FOLDER, Golden, Section, read, read_all
from tests.compat.iptables_programs import (
    BACKENDS,
    MARK_DROP,
    each_family_and_backend,
    load,
    namespace,
    run_script,
    saved_tables,
    without_empty_built_in_chains,
    without_ipvs_matches,
    without_nfacct,
)
from tests.compat.parsed_rules import parse_tables
from tests.compat.parsed_sets import ParsedSet, parse_ipsets
from tests.support.lab.namespace import Namespace

pytestmark = pytest.mark.kernel

GOLDENS = [golden for golden in read_all() if golden.path.stem != "ipvs-cleanup"]
"""The files with rules to restore; ipvs-cleanup.golden has only commands."""
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


class Step(NamedTuple):
    """The input of ``ipset restore`` and ``iptables-restore`` in one step."""

    sets: str
    rules: str


@pytest.mark.parametrize(("golden", "family", "backend"), CASES)
def test_golden_rules_load_and_read_back_equal(golden: Golden, family: Family, backend: str) -> None:
    steps = list(_steps(golden, family))
    expected = without_empty_built_in_chains(parse_tables("".join(step.rules for step in steps), family))
    with namespace() as netns:
        for step in steps:
            _restore_sets(netns, step.sets)
            load(netns, step.rules, family, backend)
        assert without_empty_built_in_chains(saved_tables(netns, family, backend)) == expected
        assert _saved_sets(netns) == parse_ipsets("".join(step.sets for step in steps))
    assert expected


def _steps(golden: Golden, family: Family) -> Iterator[Step]:
    """Yield the previous state, and the sync of the file."""
    yield from (Step("", _text(section.rules)) for section in golden.sections if section.name == "existing")
    if "document-003" in golden.header["flags"]:
        yield Step("", MARK_DROP)
    yield from (_sync(sync, family) for sync in (*_syncs_before(golden), golden))


def _syncs_before(golden: Golden) -> Iterator[Golden]:
    """Yield the full sync of the file's objects before the change."""
    header, _, _ = golden.above.partition("\n---\n")
    for section in golden.sections:
        if section.name == "before":
            yield Golden(golden.path, f"{header}\n---\n{_text(section.rules)}", ())


def _sync(golden: Golden, family: Family) -> Step:
    sets = _part(golden, "ipset", family) if golden.header["backend"] == "ipvs" else ""
    return Step(sets, without_ipvs_matches(without_nfacct(_rules(golden, family))))


def _rules(golden: Golden, family: Family) -> str:
    """Return the input of iptables-restore; a cleanup restores tables one at a time."""
    is_cleanup = "--cleanup" in golden.header["flags"]
    names = ("iptables-restore-nat", "iptables-restore-filter") if is_cleanup else ("iptables-restore",)
    return "".join(_part(golden, name, family) for name in names)


def _part(golden: Golden, name: str, family: Family) -> str:
    """Return a part as shown in the file, or else as printed by the command."""
    requested = Section(name, family.value.lower(), ())
    shown = [section for section in golden.expected_sections if section.heading == requested.heading]
    return _text(shown[0].rules if shown else golden.render_section(requested))


def _text(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _restore_sets(netns: Namespace, text: str) -> None:
    netns.run(["ipset", "restore", "-exist"], stdin=text)


def _saved_sets(netns: Namespace) -> dict[str, ParsedSet]:
    return parse_ipsets(netns.run(["ipset", "save"]).stdout)


def test_listed_golden_files_have_earlier_state() -> None:
    earlier = {golden.path.stem for golden in GOLDENS if len(list(_steps(golden, Family.IPV4))) > 1}
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
        for text in (_text(existing.rules), CANARY):
            load(netns, text, family, backend)
        run_script(netns, _part(start, "jumps", family), backend, tmp_path)

        run_script(netns, _part(cleanup, "jumps-removed", family), backend, tmp_path)
        load(netns, _rules(cleanup, family), family, backend)
        run_script(netns, _part(cleanup, "canary-removed", family), backend, tmp_path)
        assert without_empty_built_in_chains(saved_tables(netns, family, backend)) == without_empty_built_in_chains(
            parse_tables(LEFT_BY_CLEANUP, family)
        )


@each_family_and_backend
def test_ipvs_cleanup_keeps_ipv6_sets(tmp_path: Path, family: Family, backend: str) -> None:
    """Tests in the virtual machine cover the other parts: virtual servers, the device, and the kernel module."""
    cleanup, before = read(FOLDER / "ipvs-cleanup.golden"), read(FOLDER / "ipvs-load-balancer.golden")
    sync = _sync(before, family)
    with namespace() as netns:
        run_script(netns, _part(before, "jumps", family), backend, tmp_path)
        _restore_sets(netns, sync.sets)
        load(netns, sync.rules, family, backend)

        for name in ("jumps-removed", "chains-removed", "ipset-destroyed"):
            run_script(netns, _part(cleanup, name, family), backend, tmp_path)
        assert without_empty_built_in_chains(saved_tables(netns, family, backend)) == {}
        assert _saved_sets(netns) == (parse_ipsets(sync.sets) if family is Family.IPV6 else {})
