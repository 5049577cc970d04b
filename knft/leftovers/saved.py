"""Parses the output of iptables-save."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

# A quoted word with escapes, or a plain word: iptables-save quotes words with blanks.
_WORD = re.compile(r'"(?:[^"\\]|\\.)*"|\S+')
_JUMP_OPTIONS = frozenset({"-j", "-g", "--jump", "--goto"})
_SET_OPTIONS = frozenset({"--match-set", "--add-set", "--del-set", "--map-set"})
# Options whose value is free text and may look like an option.
_FREE_TEXT_OPTIONS = frozenset({"--comment", "--string", "--log-prefix", "--nflog-prefix"})


@dataclass(frozen=True, slots=True)
class SavedRule:
    """A rule. ``text`` is the rule as printed after the chain's name, so that ``-D CHAIN text`` deletes it."""

    chain: str
    text: str
    target: str | None
    """The chain or verdict of -j or -g; None if the rule has neither."""
    sets: frozenset[str]
    """The ipsets that it uses."""


@dataclass(frozen=True, slots=True)
class SavedTable:
    """A table: the names of its built-in chains and of its other chains, and its rules in order.

    ``dropping`` are the built-in chains whose policy is DROP.
    """

    name: str
    built_in: frozenset[str]
    chains: tuple[str, ...]
    rules: tuple[SavedRule, ...]
    dropping: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class SavedRules:
    """The parsed output of one backend for one IP family, and the tables that iptables-save could not print.

    ``incomplete_tables`` have base chains that only nft can list; iptables-save printed the other chains.
    """

    tables: tuple[SavedTable, ...]
    unreadable_tables: tuple[str, ...] = ()
    incomplete_tables: tuple[str, ...] = ()


def parse_saved(text: str) -> SavedRules:
    """Parse the output of iptables-save of any backend and family; unknown lines are ignored."""
    unreadable = re.findall(r"^# Table `(\w+)' is incompatible", text, re.MULTILINE)
    incomplete = re.findall(r"^# Table `(\w+)' contains incompatible base-chains", text, re.MULTILINE)
    tables = tuple(_parse_table(lines) for lines in _split_tables(text))
    return SavedRules(tables, tuple(unreadable), tuple(incomplete))


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
        dropping=frozenset(words[0] for words in declared if words[1] == "DROP"),
    )


def _parse_rule(line: str) -> SavedRule:
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
    return SavedRule(chain, text, target, frozenset(sets))
