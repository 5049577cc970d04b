"""Reads whole captures: tables, chains and rules, as iptables-save prints them and iptables-restore takes them.

A table may come again, as kube-proxy hands a sync to ``iptables-restore --noflush``: a chain that is declared again
is emptied, and what is not mentioned stays. Only where the kernel's own chains are declared twice are there two
captures in one text, of two backends perhaps, and nobody knows which of them is in force.
"""

from collections.abc import Callable, Mapping

from msgspec import Struct

from knft.errors import CaptureError
from knft.interpret.iptables.built_in import TABLES, base_chain
from knft.interpret.iptables.ipsets import IpSet, read_sets
from knft.interpret.iptables.lookups import Lookups
from knft.interpret.iptables.meaning import Meaning
from knft.interpret.iptables.words import plain, quoted, split
from knft.interpret.rules import BaseChain, Chain, IpVersion, Rule, RuleSet, Verdict

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
    """A table while it is read."""

    name: str
    line: int
    chains: dict[str, list[Rule]]
    policies: dict[str, str]
    declared: bool = False
    """Whether the kernel's own chains were declared in an earlier part of the text."""


def read(save: str, version: IpVersion, sets: str | Mapping[str, IpSet] = "") -> RuleSet:
    """Read what ``iptables-save`` (4) or ``ip6tables-save`` (6) printed; raise CaptureError.

    ``sets`` is what ``ipset save`` printed, or what ``read_sets`` has made of it.
    """
    lookups = Lookups(version, read_sets(sets) if isinstance(sets, str) else sets, save)
    reader = _Reader(Meaning(lookups))
    for number, line in enumerate(save.split("\n"), 1):
        try:
            reader.line(number, line)
        except CaptureError as error:
            msg = f"line {number}: {error}"
            raise CaptureError(msg) from error
    tables = reader.finished()
    return RuleSet(
        version=version,
        bases=tuple(base for table in tables for base in _bases(table)),
        chains={name: chain for table in tables for name, chain in _chains(table)},
        collections=lookups.collections,
    )


def _bases(table: _Table) -> list[BaseChain]:
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
    """Takes a capture line by line."""

    def __init__(self, meaning: Meaning) -> None:
        self._meaning = meaning
        self._tables: dict[str, _Table] = {}
        self._table: _Table | None = None
        self._commands: dict[str, Callable[[int, str, list[str]], None]] = {
            "-A": self._append,
            "-I": self._insert,
            "-N": self._new,
            "-X": self._delete,
            "-F": self._flush,
            "-P": self._policy,
            "-Z": self._zero,
        }

    def line(self, number: int, line: str) -> None:
        """Take a line."""
        match line[:1]:
            case "-":
                self._command(number, line, line)
            case "[":
                # Counters stand in front of the rule, where iptables-save was asked for them.
                self._command(number, line, line.partition("] ")[2])
            case ":":
                self._declare(line)
            case "#":
                _check_remark(line)
            case "*":
                self._begin(number, line[1:].strip())
            case _:
                self._commit(line.strip())

    def finished(self) -> list[_Table]:
        """Return the tables, when the text is at its end."""
        if self._table is not None:
            msg = (
                f"the table {self._table.name}, which begins in line {self._table.line}, does not end with COMMIT: "
                "the capture was cut off, take it again"
            )
            raise CaptureError(msg)
        for table in self._tables.values():
            _check_leads(table)
        return list(self._tables.values())

    def _open(self, line: str) -> _Table:
        if self._table is None:
            msg = f"{quoted(line)} stands in no table: a line such as *filter has to come first"
            raise CaptureError(msg)
        return self._table

    def _begin(self, number: int, name: str) -> None:
        if self._table is not None:
            msg = f"the table {self._table.name} has no COMMIT before *{name}: the capture is not whole, take it again"
            raise CaptureError(msg)
        if name not in TABLES:
            msg = f"{quoted(name)} is no table of iptables, which are {', '.join(TABLES)}"
            raise CaptureError(msg)
        table = self._tables.setdefault(name, _Table(name, number, {}, {}))
        table.line = number
        table.declared = bool(table.policies)
        self._table = table

    def _commit(self, line: str) -> None:
        if line:
            if line != "COMMIT":
                raise _no_line(line)
            self._open(line)
            self._table = None

    def _declare(self, line: str) -> None:
        table = self._open(line)
        words = line[1:].split()
        if len(words) < 2 or words[1] not in _POLICIES:  # noqa: PLR2004 - a name and a policy
            raise _no_line(line)
        name, policy = words[:2]
        if name in TABLES[table.name]:
            if table.declared:
                msg = (
                    f"the table {table.name} is there twice: read one capture at a time, "
                    "of iptables-nft-save or of iptables-legacy-save"
                )
                raise CaptureError(msg)
            if policy != "-":
                table.policies[name] = policy
        elif policy != "-":
            msg = f"{quoted(name)} is no chain of the kernel's in the table {table.name}, and only those have a policy"
            raise CaptureError(msg)
        table.chains[name] = []

    def _command(self, number: int, line: str, command: str) -> None:
        words = split(command) or [""]
        read = self._commands.get(_COMMANDS.get(words[0], words[0]))
        if read is None:
            msg = f"{quoted(line)} is no rule: lines such as -A CHAIN ... are, and what iptables-save prints"
            raise CaptureError(msg)
        self._open(line)
        read(number, line, words[1:])

    def _append(self, number: int, line: str, words: list[str]) -> None:
        self._chain(words).extend(self._rules(number, line, words[1:]))

    def _insert(self, number: int, line: str, words: list[str]) -> None:
        chain = self._chain(words)
        rest = words[1:]
        place = 0
        if rest and rest[0].isdecimal() and len(rest[0]) < len("4294967296"):
            place = max(int(rest[0]) - 1, 0)
            rest = rest[1:]
        chain[place:place] = self._rules(number, line, rest)

    def _rules(self, number: int, line: str, words: list[str]) -> list[Rule]:
        table = self._open(line)
        ways, comment = self._meaning.rule(words, table.name)
        text = line.rstrip("\r")
        return [Rule(steps, text, number, comment) for steps in ways]

    def _chain(self, words: list[str]) -> list[Rule]:
        """Return the rules of a chain; the kernel's own need no declaration."""
        table = self._open("")
        name = _name(words)
        found = table.chains.get(name)
        if found is None:
            if name not in TABLES[table.name]:
                raise _no_chain(table, name)
            found = table.chains[name] = []
        return found

    def _new(self, _: int, line: str, words: list[str]) -> None:
        self._open(line).chains.setdefault(_name(words), [])

    def _delete(self, _: int, line: str, words: list[str]) -> None:
        table = self._open(line)
        names = [_name(words)] if words else [name for name in table.chains if name not in TABLES[table.name]]
        for name in names:
            if table.chains.get(name, True):
                if name not in table.chains:
                    raise _no_chain(table, name)
                msg = f"the chain {quoted(name)} is to be deleted, and has rules"
                raise CaptureError(msg)
            del table.chains[name]

    def _flush(self, _: int, line: str, words: list[str]) -> None:
        table = self._open(line)
        for rules in [self._chain(words)] if words else list(table.chains.values()):
            rules.clear()

    def _policy(self, _: int, line: str, words: list[str]) -> None:
        table = self._open(line)
        if len(words) < 2 or words[0] not in TABLES[table.name] or words[1] not in _POLICIES:  # noqa: PLR2004
            raise _no_line(line)
        self._chain(words)
        table.policies[words[0]] = words[1]

    def _zero(self, _: int, __: str, ___: list[str]) -> None:
        """Do nothing: it is about counters."""


def _name(words: list[str]) -> str:
    if not words:
        msg = "the line ends where a chain's name is needed"
        raise CaptureError(msg)
    return plain(words[0])


def _no_line(line: str) -> CaptureError:
    return CaptureError(f"{quoted(line)} is nothing that iptables-save prints")


def _no_chain(table: _Table, name: str) -> CaptureError:
    return CaptureError(
        f"the table {table.name} has no chain {quoted(name)}: capture the whole table, as iptables-save prints it"
    )


def _check_leads(table: _Table) -> None:
    """Refuse a rule that leads to a chain that is not there."""
    there = {f"{table.name} {name}" for name in table.chains}
    for rules in table.chains.values():
        for rule in rules:
            step = rule.steps[-1] if rule.steps else None
            if isinstance(step, Verdict) and step.chain and step.chain not in there:
                msg = f"line {rule.line}: {_no_chain(table, step.chain.removeprefix(f'{table.name} '))}"
                raise CaptureError(msg)


def _check_remark(line: str) -> None:
    """Refuse what iptables-save could not print; what it remarks on otherwise is for people."""
    if line.startswith("# Table `") and "incompatible" in line:
        msg = f"{quoted(line[2:])}: it holds rules of nft that are not shown here; read `nft -j list ruleset` instead"
        raise CaptureError(msg)
