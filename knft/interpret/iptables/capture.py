"""Reads whole captures: what iptables-save prints, or input of iptables-restore.

A table may occur several times, as kube-proxy writes ``iptables-restore --noflush``: a chain that is declared again is
flushed, and other chains stay. If the built-in chains of a table are declared twice, the text holds two
captures, for example of iptables-nft and iptables-legacy. That raises a CaptureError, since knft cannot find out which
of them the kernel uses.
"""

from collections.abc import Callable, Mapping

from msgspec import Struct

from knft.errors import CaptureError
from knft.families import IpVersion
from knft.interpret.errors import abbreviated
from knft.interpret.iptables.built_in import TABLES, base_chain
from knft.interpret.iptables.ipsets import IpSet, read_sets
from knft.interpret.iptables.lookups import Lookups
from knft.interpret.iptables.quoting import split_words, unquote
from knft.interpret.iptables.rule import RuleReader
from knft.interpret.rules import BaseChain, Chain, Rule, RuleSet, Verdict

_POLICIES = {"ACCEPT", "DROP", "-"}
_COMMANDS = {
    "--append": "-A",
    "--insert": "-I",
    "--delete-chain": "-X",
    "--new-chain": "-N",
    "--new": "-N",
    "--flush": "-F",
    "--policy": "-P",
    "--zero": "-Z",
}


class _Table(Struct):
    """A table while it is read; ``line`` is where it begins."""

    name: str
    line: int
    chains: dict[str, list[Rule]]
    policies: dict[str, str]
    declared: bool = False
    """Whether its built-in chains were declared in an earlier part of the text."""


def read(save: str, version: IpVersion, sets: str | Mapping[str, IpSet] = "") -> RuleSet:
    """Read the output of ``iptables-save`` (version 4) or ``ip6tables-save`` (version 6); raise CaptureError.

    ``sets`` is the output of ``ipset save``, or the result of ``read_sets``.
    """
    lookups = Lookups(version, read_sets(sets) if isinstance(sets, str) else sets, save)
    reader = _Reader(RuleReader(lookups))
    for number, line in enumerate(save.split("\n"), 1):
        try:
            reader.line(number, line)
        except CaptureError as error:
            msg = f"line {number}: {error}"
            raise CaptureError(msg) from error
    tables = reader.finish()
    return RuleSet(
        version=version,
        base_chains=tuple(base for table in tables for base in _base_chains(table)),
        chains={name: chain for table in tables for name, chain in _chains(table)},
        collections=lookups.collections,
    )


def _base_chains(table: _Table) -> list[BaseChain]:
    return [
        base_chain(table.name, hook, table.policies.get(hook, "ACCEPT"))
        for hook in TABLES[table.name]
        if hook in table.chains
    ]


def _chains(table: _Table) -> list[tuple[str, Chain]]:
    return [
        (full, Chain(full, tuple(rules)))
        for full, rules in ((f"{table.name} {name}", rules) for name, rules in table.chains.items())
    ]


class _Reader:
    """Reads a capture line by line."""

    def __init__(self, rule_reader: RuleReader) -> None:
        self._rule_reader = rule_reader
        self._tables: dict[str, _Table] = {}
        self._table: _Table | None = None
        self._commands: dict[str, Callable[[int, str, list[str]], None]] = {
            "-A": self._append_rule,
            "-I": self._insert_rule,
            "-N": self._new_chain,
            "-X": self._delete_chain,
            "-F": self._flush_chain,
            "-P": self._set_policy,
            "-Z": self._zero_counters,
        }

    def line(self, number: int, line: str) -> None:
        """Read one line."""
        match line[:1]:
            case "-":
                self._command(number, line, line)
            case "[":
                # iptables-save --counters prints counters before the rule.
                self._command(number, line, line.partition("] ")[2])
            case ":":
                self._declare_chain(line)
            case "#":
                _check_comment(line)
            case "*":
                self._begin_table(number, line[1:].strip())
            case _:
                self._commit_table(line.strip())

    def finish(self) -> list[_Table]:
        """Return the tables at the end of the text."""
        if self._table is not None:
            msg = (
                f"table {self._table.name}, which begins in line {self._table.line}, does not end with COMMIT: "
                "the capture is truncated, run iptables-save again"
            )
            raise CaptureError(msg)
        for table in self._tables.values():
            _check_jump_targets(table)
        return list(self._tables.values())

    def _current_table(self, line: str) -> _Table:
        if self._table is None:
            msg = f"{abbreviated(line)} is outside of a table: expected a line such as *filter first"
            raise CaptureError(msg)
        return self._table

    def _begin_table(self, number: int, name: str) -> None:
        if self._table is not None:
            msg = (
                f"table {self._table.name} has no COMMIT before *{name}: the capture is incomplete, "
                "run iptables-save again"
            )
            raise CaptureError(msg)
        if name not in TABLES:
            msg = f"unknown table {abbreviated(name)}, expected one of {', '.join(TABLES)}"
            raise CaptureError(msg)
        table = self._tables.setdefault(name, _Table(name, number, {}, {}))
        table.line = number
        table.declared = bool(table.policies)
        self._table = table

    def _commit_table(self, line: str) -> None:
        if line:
            if line != "COMMIT":
                raise _invalid_line(line)
            self._current_table(line)
            self._table = None

    def _declare_chain(self, line: str) -> None:
        table = self._current_table(line)
        words = line[1:].split()
        if len(words) < 2 or words[1] not in _POLICIES:  # noqa: PLR2004 - a name and a policy
            raise _invalid_line(line)
        name, policy = words[:2]
        if name in TABLES[table.name]:
            if table.declared:
                msg = (
                    f"table {table.name} occurs twice: pass one capture at a time, "
                    "of iptables-nft-save or of iptables-legacy-save"
                )
                raise CaptureError(msg)
            if policy != "-":
                table.policies[name] = policy
        elif policy != "-":
            msg = (
                f"{abbreviated(name)} is not a built-in chain of table {table.name}: only built-in chains have a policy"
            )
            raise CaptureError(msg)
        table.chains[name] = []

    def _command(self, number: int, line: str, command: str) -> None:
        words = split_words(command) or [""]
        read = self._commands.get(_COMMANDS.get(words[0], words[0]))
        if read is None:
            msg = f"{abbreviated(line)} is not a rule: expected a line such as -A CHAIN ..."
            raise CaptureError(msg)
        self._current_table(line)
        read(number, line, words[1:])

    def _append_rule(self, number: int, line: str, words: list[str]) -> None:
        self._chain_rules(words).extend(self._read_rules(number, line, words[1:]))

    def _insert_rule(self, number: int, line: str, words: list[str]) -> None:
        chain = self._chain_rules(words)
        rest = words[1:]
        place = 0
        if rest and rest[0].isdecimal() and len(rest[0]) < len("4294967296"):
            place = max(int(rest[0]) - 1, 0)
            rest = rest[1:]
        chain[place:place] = self._read_rules(number, line, rest)

    def _read_rules(self, number: int, line: str, words: list[str]) -> list[Rule]:
        table = self._current_table(line)
        alternatives, comment = self._rule_reader.read(words, table.name)
        text = line.rstrip("\r")
        return [Rule(steps, text, number, comment) for steps in alternatives]

    def _chain_rules(self, words: list[str]) -> list[Rule]:
        """Return the rules of a chain; built-in chains need no declaration."""
        table = self._current_table("")
        name = _chain_name(words)
        rules = table.chains.get(name)
        if rules is None:
            if name not in TABLES[table.name]:
                raise _missing_chain(table, name)
            rules = table.chains[name] = []
        return rules

    def _new_chain(self, _: int, line: str, words: list[str]) -> None:
        self._current_table(line).chains.setdefault(_chain_name(words), [])

    def _delete_chain(self, _: int, line: str, words: list[str]) -> None:
        table = self._current_table(line)
        names = [_chain_name(words)] if words else [name for name in table.chains if name not in TABLES[table.name]]
        for name in names:
            if table.chains.get(name, True):
                if name not in table.chains:
                    raise _missing_chain(table, name)
                msg = f"cannot delete chain {abbreviated(name)}: it has rules"
                raise CaptureError(msg)
            del table.chains[name]

    def _flush_chain(self, _: int, line: str, words: list[str]) -> None:
        table = self._current_table(line)
        for rules in [self._chain_rules(words)] if words else list(table.chains.values()):
            rules.clear()

    def _set_policy(self, _: int, line: str, words: list[str]) -> None:
        table = self._current_table(line)
        if len(words) < 2 or words[0] not in TABLES[table.name] or words[1] not in _POLICIES:  # noqa: PLR2004
            raise _invalid_line(line)
        self._chain_rules(words)
        table.policies[words[0]] = words[1]

    def _zero_counters(self, _: int, __: str, ___: list[str]) -> None:
        """Ignore the command: it resets counters."""


def _chain_name(words: list[str]) -> str:
    if not words:
        msg = "expected a chain at the end of the line"
        raise CaptureError(msg)
    return unquote(words[0])


def _invalid_line(line: str) -> CaptureError:
    return CaptureError(f"{abbreviated(line)} is not a line of iptables-save")


def _missing_chain(table: _Table, name: str) -> CaptureError:
    return CaptureError(
        f"table {table.name} has no chain {abbreviated(name)}: capture the whole table with iptables-save"
    )


def _check_jump_targets(table: _Table) -> None:
    """Raise CaptureError if a rule jumps to a chain that the capture does not have."""
    chains = {f"{table.name} {name}" for name in table.chains}
    for rules in table.chains.values():
        for rule in rules:
            step = rule.steps[-1] if rule.steps else None
            if isinstance(step, Verdict) and step.chain and step.chain not in chains:
                msg = f"line {rule.line}: {_missing_chain(table, step.chain.removeprefix(f'{table.name} '))}"
                raise CaptureError(msg)


def _check_comment(line: str) -> None:
    """Raise CaptureError if the comment says that iptables-save could not print a table."""
    if line.startswith("# Table `") and "incompatible" in line:
        msg = f"{abbreviated(line[2:])}: it has nft rules that iptables-save omits; use `nft -j list ruleset` instead"
        raise CaptureError(msg)
