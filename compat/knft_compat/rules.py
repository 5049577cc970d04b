"""iptables rules as values, the input of ``iptables-restore``, and the rules that both modes share."""

from collections.abc import Iterator
from typing import ClassVar

from msgspec import Struct

from knft.families import Family
from knft_compat.names import FORWARD, MARK_MASQ, POSTROUTING
from knft_compat.sync_input import Masquerade

PROGRAMS = {Family.IPV4: "iptables", Family.IPV6: "ip6tables"}
WAIT = ("-w", "5", "-W", "100000")
"""Wait up to 5 seconds for the xtables lock, and try 10 times a second (docs/behaviour/iptables.md#executor)."""


class Rule(Struct, frozen=True, tag="rule"):
    """A rule: its chain, and the arguments of iptables, not quoted yet."""

    chain: str
    arguments: tuple[str, ...]

    def __str__(self) -> str:
        """Return the line that appends the rule."""
        return " ".join(("-A", self.chain, *map(_quoted, self.arguments)))


class ChainDeletion(Struct, frozen=True, tag="deletion"):
    """Deletes a chain; no rule may jump to it."""

    chain: str

    def __str__(self) -> str:
        """Return the line that deletes the chain."""
        return f"-X {self.chain}"


Line = Rule | ChainDeletion


class TableInput(Struct, frozen=True):
    """The input of iptables-restore for one table: the chains to create or flush, then the lines, in order."""

    name: str
    chains: tuple[str, ...]
    lines: tuple[Line, ...]

    def text(self) -> Iterator[str]:
        """Yield the lines of the input."""
        yield f"*{self.name}"
        for chain in self.chains:
            yield f":{chain} - [0:0]"
        for line in self.lines:
            yield str(line)
        yield "COMMIT"


class RestoreInput(Struct, frozen=True, tag="iptables-restore"):
    """The input of ``iptables-restore``; each table is one transaction."""

    family: Family
    tables: tuple[TableInput, ...]
    single_table: ClassVar[str] = ""
    """The name of the only table to restore, or "" for all."""

    @property
    def tool(self) -> tuple[str, ...]:
        """The command that reads the input."""
        table_option = ("-T", self.single_table) if self.single_table else ()
        return (f"{PROGRAMS[self.family]}-restore", *WAIT, *table_option, "--noflush", "--counters")

    def text(self) -> Iterator[str]:
        """Yield the lines of the input."""
        for table in self.tables:
            yield from table.text()


class RestoreNatInput(RestoreInput, frozen=True, tag="iptables-restore-nat"):
    """The input for the nat table alone."""

    single_table: ClassVar[str] = "nat"


class RestoreFilterInput(RestoreInput, frozen=True, tag="iptables-restore-filter"):
    """The input for the filter table alone."""

    single_table: ClassVar[str] = "filter"


def comment(text: str) -> tuple[str, ...]:
    """Return the iptables arguments of a comment."""
    return ("-m", "comment", "--comment", text)


REQUIRES_SNAT_COMMENT = comment("kubernetes service traffic requiring SNAT")


def masquerade_rules(masquerade: Masquerade) -> Iterator[Rule]:
    """Yield the rules that masquerade marked packets."""
    mark = masquerade.mark_text
    yield Rule(POSTROUTING, ("-m", "mark", "!", "--mark", f"{mark}/{mark}", "-j", "RETURN"))
    # Clear the mark, so that a packet that passes twice, such as through a tunnel, is masqueraded once.
    yield Rule(POSTROUTING, ("-j", "MARK", "--xor-mark", mark))
    yield Rule(POSTROUTING, (*REQUIRES_SNAT_COMMENT, *masquerade_target(masquerade)))


def masquerade_target(masquerade: Masquerade) -> tuple[str, ...]:
    """Return the arguments of the MASQUERADE target."""
    return ("-j", "MASQUERADE", *(("--random-fully",) if masquerade.random_fully else ()))


def mark_rule(masquerade: Masquerade) -> Rule:
    """Return the rule that sets the masquerade mark."""
    return Rule(MARK_MASQ, ("-j", "MARK", "--or-mark", masquerade.mark_text))


def forward_rules(masquerade: Masquerade) -> Iterator[Rule]:
    """Yield the rules that accept forwarded packets: marked ones, and those of established connections."""
    label = comment("kubernetes forwarding rules")
    yield Rule(FORWARD, (*label, *mark_match(masquerade.mark_text), "-j", "ACCEPT"))
    label = comment("kubernetes forwarding conntrack rule")
    yield Rule(FORWARD, (*label, "-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED", "-j", "ACCEPT"))


def mark_match(mark: str) -> tuple[str, ...]:
    """Return the arguments that match packets with the mark."""
    return ("-m", "mark", "--mark", f"{mark}/{mark}")


def _quoted(argument: str) -> str:
    """Quote an argument for iptables-restore; like kube-proxy, quote only arguments with blanks."""
    return f'"{argument}"' if " " in argument else argument
