"""What iptables-save prints, as values."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

# A quoted word with its escapes, or a plain one: iptables-save quotes what has blanks.
_WORD = re.compile(r'"(?:[^"\\]|\\.)*"|\S+')
_JUMP_OPTIONS = frozenset({"-j", "-g", "--jump", "--goto"})
_SET_OPTIONS = frozenset({"--match-set", "--add-set", "--del-set", "--map-set"})
# Options whose value is somebody's free text, which may look like an option itself.
_FREE_TEXT_OPTIONS = frozenset({"--comment", "--string", "--log-prefix", "--nflog-prefix"})


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. ``text`` is all that follows the chain's name, as printed: with ``-D CHAIN`` in front it is deleted."""

    chain: str
    text: str
    target: str | None
    """Where it jumps or goes to: a chain or a verdict; None for a rule that only counts."""
    sets: frozenset[str]
    """The ipsets that it names."""


@dataclass(frozen=True, slots=True)
class SavedTable:
    """A table: the names of its built-in chains, those of all others, and its rules in order."""

    name: str
    built_in: frozenset[str]
    chains: tuple[str, ...]
    rules: tuple[Rule, ...]


@dataclass(frozen=True, slots=True)
class SavedRules:
    """All that one backend printed for one family; ``unreadable`` tables hold rules it cannot show."""

    tables: tuple[SavedTable, ...]
    unreadable_tables: tuple[str, ...] = ()


def parse_saved(text: str) -> SavedRules:
    """Read what ``iptables-save`` printed, of either backend and family; lines of unknown form are passed over."""
    unreadable = re.findall(r"^# Table `(\w+)' is incompatible", text, re.MULTILINE)
    return SavedRules(tuple(_parse_table(lines) for lines in _split_tables(text)), tuple(unreadable))


def _split_tables(text: str) -> Iterator[list[str]]:
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("*"):
            lines = [line]
        elif line == "COMMIT":
            yield lines
            lines = []
        elif lines:
            lines.append(line)


def _parse_table(lines: list[str]) -> SavedTable:
    declared = [line[1:].split() for line in lines if line.startswith(":")]
    return SavedTable(
        name=lines[0][1:],
        built_in=frozenset(words[0] for words in declared if words[1] != "-"),
        chains=tuple(words[0] for words in declared if words[1] == "-"),
        rules=tuple(_parse_rule(line) for line in lines if line.startswith("-A ")),
    )


def _parse_rule(line: str) -> Rule:
    _, chain, text = (*line.split(" ", 2), "")[:3]
    target, sets = None, set()
    words = iter(_WORD.findall(text))
    for word in words:
        if word in _FREE_TEXT_OPTIONS:
            next(words, None)
        elif word in _SET_OPTIONS:
            sets.add(next(words, ""))
        elif word in _JUMP_OPTIONS and target is None:
            target = next(words, None)
    return Rule(chain, text, target, frozenset(sets))
