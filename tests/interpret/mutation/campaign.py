"""All mutants of some clusters, in every mode, and what becomes of each: found, named, or the same by a reason."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random
from typing import Any, NamedTuple

from knft.cli.captured import Texts
from knft.cli.diff import Sides
from knft.takeover.names import Mode
from tests.interpret.mutation import (
    iptables_operators,
    iptables_rewrites,
    ipvs_operators,
    nftables_operators,
    nftables_rewrites,
)
from tests.interpret.mutation.judging import Judged, judged
from tests.interpret.mutation.listed import Listed
from tests.interpret.mutation.node import Node
from tests.interpret.mutation.operator import Operator, Rewrite, Touched
from tests.interpret.mutation.saved import Saved
from tests.interpret.mutation.subjects import Subject, subjects


class Kind(NamedTuple):
    """A mode as captures show it: what is edited, and what it is held against."""

    name: str
    operators: Sequence[Operator[Any]]
    rewrites: Sequence[Rewrite[Any]]
    edited: Callable[[Subject], Any]
    texts: Callable[[Subject, Any], Texts]
    sides: Callable[[Subject, Texts], Sides]

    def untouched(self, subject: Subject) -> Sides:
        """Return what is compared where nothing is wrong."""
        return self.sides(subject, self.texts(subject, self.edited(subject)))


def _node(subject: Subject) -> Node:
    assert subject.legacy.node.ip is not None
    return Node(subject.saved(Mode.IPVS), subject.version, subject.names(), subject.legacy.node.ip)


def _nftables(version: str, *, by_chains: bool) -> Kind:
    return Kind(
        f"nftables {version}",
        nftables_operators.OPERATORS,
        nftables_rewrites.REWRITES,
        edited=lambda subject: Listed(subject.listed(by_chains=by_chains)),
        texts=lambda _, listed: Texts(nftables=listed.document()),
        sides=lambda subject, texts: subject.sides(Mode.NFTABLES, texts),
    )


KINDS = (
    Kind(
        "iptables",
        iptables_operators.OPERATORS,
        iptables_rewrites.REWRITES,
        edited=lambda subject: Saved(subject.saved(Mode.IPTABLES).rules),
        texts=lambda subject, saved: Texts({subject.version: saved.text()}),
        sides=lambda subject, texts: subject.sides(Mode.IPTABLES, texts),
    ),
    _nftables("1.35", by_chains=True),
    _nftables("1.36", by_chains=False),
    Kind(
        "ipvs",
        ipvs_operators.OPERATORS,
        (),
        edited=_node,
        texts=lambda _, node: node.texts(),
        sides=lambda subject, texts: subject.sides(Mode.IPVS, texts),
    ),
)


class Mutant(NamedTuple):
    """One mutation, and what came of it."""

    kind: str
    operator: str
    where: str
    touched: Touched
    judged: Judged

    @property
    def failure(self) -> str:
        """What is wrong with the comparison, "" where nothing is."""
        where = f"{self.kind}, {self.operator}, {self.where}"
        if self.touched.equivalent:
            return f"{where}: not the same: {self.judged.said}" if self.judged.found else ""
        if not self.judged.found:
            return f"{where}: survived, at {self.touched.services or 'all'}"
        return "" if self.judged.named else f"{where}: not {self.touched.services}, but {self.judged.said}"


def _chance(kind: Kind, subject: Subject, change: Operator[Any] | Rewrite[Any]) -> Random:
    return Random(f"{kind.name} {subject.name} {change.name}")  # noqa: S311 - a seed, no secret


def mutants(kind: Kind, seeds: Iterable[int]) -> Iterator[Mutant]:
    """Yield one mutant of each operator for both families of each cluster, where there is a place for it."""
    for seed in seeds:
        for subject in subjects(seed):
            for operator in kind.operators:
                edited = kind.edited(subject)
                touched = operator.change(edited, _chance(kind, subject, operator))
                if touched is not None:
                    sides = kind.sides(subject, kind.texts(subject, edited))
                    yield Mutant(kind.name, operator.name, subject.name, touched, judged(sides, touched))


def rewritten(kind: Kind, seeds: Iterable[int]) -> Iterator[Mutant]:
    """Yield the same of every rewrite, each of which is equivalent."""
    for seed in seeds:
        for subject in subjects(seed):
            for rewrite in kind.rewrites:
                edited = kind.edited(subject)
                if rewrite.change(edited, _chance(kind, subject, rewrite)):
                    touched = Touched(("nobody's",), equivalent=rewrite.what)
                    sides = kind.sides(subject, kind.texts(subject, edited))
                    yield Mutant(kind.name, rewrite.name, subject.name, touched, judged(sides, touched))


class Row(NamedTuple):
    """What became of all mutants of an operator."""

    kind: str
    operator: str
    mutants: int
    found: int
    named: int
    equivalent: int


def table(results: Sequence[Mutant]) -> list[Row]:
    """Return a row for each operator."""
    groups: dict[tuple[str, str], list[Mutant]] = {}
    for mutant in results:
        groups.setdefault((mutant.kind, mutant.operator), []).append(mutant)
    return [_row(*key, group) for key, group in groups.items()]


def _row(kind: str, operator: str, group: list[Mutant]) -> Row:
    changed = [mutant.judged for mutant in group if not mutant.touched.equivalent]
    found, named = sum(item.found for item in changed), sum(item.named for item in changed)
    return Row(kind, operator, len(group), found, named, len(group) - len(changed))


def text(rows: Sequence[Row]) -> str:
    """Return the table as text, with the sum below."""
    lines = [f"{'mode':14} {'operator':36} {'mutants':>7} {'found':>6} {'named':>6} {'equivalent':>10}"]
    total = Row(
        "all", f"{len(rows)} operators", *(sum(numbers) for numbers in zip(*(row[2:] for row in rows), strict=True))
    )
    lines += [f"{row[0]:14} {row[1]:36} {row[2]:7} {row[3]:6} {row[4]:6} {row[5]:10}" for row in (*rows, total)]
    return "\n".join(lines)


def reasons(results: Iterable[Mutant]) -> list[str]:
    """Return why mutants are equivalent, operator by operator."""
    found = {f"{mutant.kind}, {mutant.operator}: {mutant.touched.equivalent}": None for mutant in results}
    return [line for line in found if not line.endswith(": ")]
