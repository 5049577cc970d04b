"""Makes mutants of clusters in every mode, and checks that the comparison finds each and names its Service."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random
from typing import Any, NamedTuple

from knft.comparison.captures import Capture
from knft.comparison.sides import Sides
from knft.proxy_mode import Mode
from tests.mutation import (
    iptables_operators,
    iptables_rewrites,
    ipvs_operators,
    nftables_operators,
    nftables_rewrites,
)
from tests.mutation.evaluation import Evaluation, evaluate
from tests.mutation.iptables_save import IptablesSave
from tests.mutation.ipvs_captures import IpvsCaptures
from tests.mutation.nft_listing import NftListing
from tests.mutation.operator import Expectation, Operator, Rewrite
from tests.mutation.subjects import MutationSubject, subjects


class MutatedMode(NamedTuple):
    """A mode of kube-proxy: its operators, and how its captures are made, edited and compared with knft."""

    name: str
    operators: Sequence[Operator[Any]]
    rewrites: Sequence[Rewrite[Any]]
    parse: Callable[[MutationSubject], Any]
    to_capture: Callable[[MutationSubject, Any], Capture]
    to_sides: Callable[[MutationSubject, Capture], Sides]

    def unchanged_sides(self, subject: MutationSubject) -> Sides:
        """Return the comparison of unchanged captures with knft."""
        return self.to_sides(subject, self.to_capture(subject, self.parse(subject)))


def _ipvs_captures(subject: MutationSubject) -> IpvsCaptures:
    assert subject.sync_input.node.ip is not None
    return IpvsCaptures(
        subject.captures(Mode.IPVS), subject.version, subject.service_names(), subject.sync_input.node.ip
    )


def _nftables(version: str, *, by_chains: bool) -> MutatedMode:
    return MutatedMode(
        f"nftables {version}",
        nftables_operators.OPERATORS,
        nftables_rewrites.REWRITES,
        parse=lambda subject: NftListing(subject.nft_listing(by_chains=by_chains)),
        to_capture=lambda _, listed: Capture(nftables=listed.document()),
        to_sides=lambda subject, texts: subject.sides(Mode.NFTABLES, texts),
    )


MUTATED_MODES = (
    MutatedMode(
        "iptables",
        iptables_operators.OPERATORS,
        iptables_rewrites.REWRITES,
        parse=lambda subject: IptablesSave(subject.captures(Mode.IPTABLES).rules),
        to_capture=lambda subject, saved: Capture({subject.version: saved.text()}),
        to_sides=lambda subject, texts: subject.sides(Mode.IPTABLES, texts),
    ),
    _nftables("1.35", by_chains=True),
    _nftables("1.36", by_chains=False),
    MutatedMode(
        "ipvs",
        ipvs_operators.OPERATORS,
        (),
        parse=_ipvs_captures,
        to_capture=lambda _, node: node.texts(),
        to_sides=lambda subject, texts: subject.sides(Mode.IPVS, texts),
    ),
)


class Mutant(NamedTuple):
    """A mutation and its evaluation."""

    target: str
    operator: str
    subject: str
    expectation: Expectation
    evaluation: Evaluation

    @property
    def failure(self) -> str:
        """The error of the comparison, empty if there is none."""
        where = f"{self.target}, {self.operator}, {self.subject}"
        if self.expectation.equivalence_reason:
            return (
                f"{where}: different outcome, expected none: {self.evaluation.sentences}"
                if self.evaluation.is_found
                else ""
            )
        if not self.evaluation.is_found:
            return f"{where}: missed, expected a difference at {self.expectation.service_ports or 'any Service'}"
        return (
            ""
            if self.evaluation.is_named
            else (
                f"{where}: expected a difference at {self.expectation.service_ports}, found {self.evaluation.sentences}"
            )
        )


def _seeded_random(mode: MutatedMode, subject: MutationSubject, change: Operator[Any] | Rewrite[Any]) -> Random:
    return Random(f"{mode.name} {subject.name} {change.name}")  # noqa: S311 - a seed, no secret


def make_mutants(mode: MutatedMode, seeds: Iterable[int]) -> Iterator[Mutant]:
    """Yield a mutant of each operator for both families of each cluster, if the operator applies."""
    for seed in seeds:
        for subject in subjects(seed):
            for operator in mode.operators:
                captures = mode.parse(subject)
                expectation = operator.change(captures, _seeded_random(mode, subject, operator))
                if expectation is not None:
                    sides = mode.to_sides(subject, mode.to_capture(subject, captures))
                    yield Mutant(mode.name, operator.name, subject.name, expectation, evaluate(sides, expectation))


def apply_rewrites(mode: MutatedMode, seeds: Iterable[int]) -> Iterator[Mutant]:
    """Yield the captures after each rewrite; all of them are equivalent."""
    for seed in seeds:
        for subject in subjects(seed):
            for rewrite in mode.rewrites:
                captures = mode.parse(subject)
                if rewrite.change(captures, _seeded_random(mode, subject, rewrite)):
                    expectation = Expectation(("no Service",), equivalence_reason=rewrite.description)
                    sides = mode.to_sides(subject, mode.to_capture(subject, captures))
                    yield Mutant(mode.name, rewrite.name, subject.name, expectation, evaluate(sides, expectation))


class Row(NamedTuple):
    """The results of all mutants of one operator."""

    target: str
    operator: str
    mutants: int
    found: int
    named: int
    equivalent: int


def summarise(results: Sequence[Mutant]) -> list[Row]:
    """Return a row for each operator."""
    groups: dict[tuple[str, str], list[Mutant]] = {}
    for mutant in results:
        groups.setdefault((mutant.target, mutant.operator), []).append(mutant)
    return [_row(*key, group) for key, group in groups.items()]


def _row(target: str, operator: str, group: list[Mutant]) -> Row:
    changed = [mutant.evaluation for mutant in group if not mutant.expectation.equivalence_reason]
    found, named = sum(item.is_found for item in changed), sum(item.is_named for item in changed)
    return Row(target, operator, len(group), found, named, len(group) - len(changed))


def format_table(rows: Sequence[Row]) -> str:
    """Return the table as text, with the totals."""
    lines = [f"{'mode':14} {'operator':36} {'mutants':>7} {'found':>6} {'named':>6} {'equivalent':>10}"]
    total = Row(
        "all", f"{len(rows)} operators", *(sum(numbers) for numbers in zip(*(row[2:] for row in rows), strict=True))
    )
    lines += [f"{row[0]:14} {row[1]:36} {row[2]:7} {row[3]:6} {row[4]:6} {row[5]:10}" for row in (*rows, total)]
    return "\n".join(lines)


def equivalence_reasons(results: Iterable[Mutant]) -> list[str]:
    """Return the reasons of equivalent mutants, by operator."""
    found = {f"{mutant.target}, {mutant.operator}: {mutant.expectation.equivalence_reason}": None for mutant in results}
    return [line for line in found if not line.endswith(": ")]
