"""Rules of iptables as values, ``iptables-restore`` input as a part, and the rules that both modes have."""

from collections.abc import Iterator
from typing import ClassVar

from msgspec import Struct

from knft.model.names import Family
from knft_compat.cluster import Masquerade
from knft_compat.names import FORWARD, MARK_MASQ, POSTROUTING

PROGRAMS = {Family.IPV4: "iptables", Family.IPV6: "ip6tables"}
WAIT = ("-w", "5", "-W", "100000")
"""How kube-proxy waits for others who hold iptables' lock: five seconds, asking ten times a second (D.8)."""


class Rule(Struct, frozen=True, tag="rule"):
    """A rule: the chain's name, and its arguments as the program gets them, a comment being one of them."""

    chain: str
    arguments: tuple[str, ...]

    def __str__(self) -> str:
        """Return the line that appends it."""
        return " ".join(("-A", self.chain, *map(_quoted, self.arguments)))


class Deletion(Struct, frozen=True, tag="deletion"):
    """The end of a chain that nothing leads to any more."""

    chain: str

    def __str__(self) -> str:
        """Return the line that deletes it."""
        return f"-X {self.chain}"


Line = Rule | Deletion


class TableInput(Struct, frozen=True):
    """One table of a restore: the chains that are made or emptied, and then the lines, in order."""

    name: str
    chains: tuple[str, ...]
    lines: tuple[Line, ...]

    def text(self) -> Iterator[str]:
        """Yield its lines."""
        yield f"*{self.name}"
        for chain in self.chains:
            yield f":{chain} - [0:0]"
        for line in self.lines:
            yield str(line)
        yield "COMMIT"


class Restore(Struct, frozen=True, tag="iptables-restore"):
    """What goes into ``iptables-restore``, one transaction for each table."""

    family: Family
    tables: tuple[TableInput, ...]
    only: ClassVar[str] = ""
    """The table that alone is restored."""

    @property
    def tool(self) -> tuple[str, ...]:
        """The command that reads it."""
        only = ("-T", self.only) if self.only else ()
        return (f"{PROGRAMS[self.family]}-restore", *WAIT, *only, "--noflush", "--counters")

    def text(self) -> Iterator[str]:
        """Yield its lines."""
        for table in self.tables:
            yield from table.text()


class RestoreNat(Restore, frozen=True, tag="iptables-restore-nat"):
    """The nat table alone."""

    only: ClassVar[str] = "nat"


class RestoreFilter(Restore, frozen=True, tag="iptables-restore-filter"):
    """The filter table alone."""

    only: ClassVar[str] = "filter"


def comment(text: str) -> tuple[str, ...]:
    """Return the arguments that say something to people."""
    return ("-m", "comment", "--comment", text)


REQUIRES_SNAT = comment("kubernetes service traffic requiring SNAT")


def masquerading(masquerade: Masquerade) -> Iterator[Rule]:
    """Yield the rules that masquerade what has the mark."""
    mark = masquerade.mark_text
    yield Rule(POSTROUTING, ("-m", "mark", "!", "--mark", f"{mark}/{mark}", "-j", "RETURN"))
    # Without the mark, a packet that passes twice, as through a tunnel, is masqueraded once.
    yield Rule(POSTROUTING, ("-j", "MARK", "--xor-mark", mark))
    yield Rule(POSTROUTING, (*REQUIRES_SNAT, *masquerade_target(masquerade)))


def masquerade_target(masquerade: Masquerade) -> tuple[str, ...]:
    """Return the arguments that masquerade."""
    return ("-j", "MASQUERADE", *(("--random-fully",) if masquerade.random_fully else ()))


def marking(masquerade: Masquerade) -> Rule:
    """Return the rule that sets the mark."""
    return Rule(MARK_MASQ, ("-j", "MARK", "--or-mark", masquerade.mark_text))


def forwarding(masquerade: Masquerade) -> Iterator[Rule]:
    """Yield the rules that let forwarded packets through: those with the mark, and those of known connections."""
    said = comment("kubernetes forwarding rules")
    yield Rule(FORWARD, (*said, *mark_match(masquerade.mark_text), "-j", "ACCEPT"))
    said = comment("kubernetes forwarding conntrack rule")
    yield Rule(FORWARD, (*said, "-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED", "-j", "ACCEPT"))


def mark_match(mark: str) -> tuple[str, ...]:
    """Return the arguments that match packets with a mark."""
    return ("-m", "mark", "--mark", f"{mark}/{mark}")


def _quoted(argument: str) -> str:
    """Return an argument as restore reads it; kube-proxy quotes those with blanks, and no others."""
    return f'"{argument}"' if " " in argument else argument
