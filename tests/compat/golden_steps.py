"""The steps of the golden files: what ipset and iptables-restore are given before and in the sync of a file."""

from collections.abc import Iterator
from typing import NamedTuple

from knft.families import Family
from tests.compat.golden import Golden, Section, read_all
from tests.support.iptables_programs import MARK_DROP, without_ipvs_matches, without_nfacct
from tests.support.lab.namespace import Namespace

GOLDENS = [golden for golden in read_all() if golden.path.stem != "ipvs-cleanup"]
"""The files with rules to restore; ipvs-cleanup.golden has only commands."""


class Step(NamedTuple):
    """The input of ``ipset restore`` and ``iptables-restore`` in one step."""

    sets: str
    rules: str


def steps_of(golden: Golden, family: Family) -> Iterator[Step]:
    """Yield the previous state, and the sync of the file."""
    yield from (Step("", text_of(section.rules)) for section in golden.sections if section.name == "existing")
    if "document-003" in golden.header["flags"]:
        yield Step("", MARK_DROP)
    yield from (sync_of(sync, family) for sync in (*_syncs_before(golden), golden))


def _syncs_before(golden: Golden) -> Iterator[Golden]:
    """Yield the full sync of the file's objects before the change."""
    header, _, _ = golden.above.partition("\n---\n")
    for section in golden.sections:
        if section.name == "before":
            yield Golden(golden.path, f"{header}\n---\n{text_of(section.rules)}", ())


def sync_of(golden: Golden, family: Family) -> Step:
    sets = part(golden, "ipset", family) if golden.header["backend"] == "ipvs" else ""
    return Step(sets, without_ipvs_matches(without_nfacct(restored_rules(golden, family))))


def restored_rules(golden: Golden, family: Family) -> str:
    """Return the input of iptables-restore; a cleanup restores tables one at a time."""
    is_cleanup = "--cleanup" in golden.header["flags"]
    names = ("iptables-restore-nat", "iptables-restore-filter") if is_cleanup else ("iptables-restore",)
    return "".join(part(golden, name, family) for name in names)


def part(golden: Golden, name: str, family: Family) -> str:
    """Return a part as shown in the file, or else as printed by the command."""
    requested = Section(name, family.value.lower(), ())
    shown = [section for section in golden.expected_sections if section.heading == requested.heading]
    return text_of(shown[0].rules if shown else golden.render_section(requested))


def text_of(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def restore_sets(netns: Namespace, text: str) -> None:
    netns.run(["ipset", "restore", "-exist"], stdin=text)
