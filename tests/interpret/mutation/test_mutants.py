"""A comparison finds what is wrong in captures, names the Service, and calls equal what is written otherwise.

One cluster here; ``make mutants`` has more, over 1 000 mutants.
"""

import pytest

from tests.interpret.mutation.campaign import KINDS, Kind, Mutant, mutants, rewritten, table, text
from tests.interpret.mutation.judging import unexplained
from tests.interpret.mutation.subjects import subjects

SEEDS = {"iptables": (1,), "nftables 1.35": (2,), "nftables 1.36": (3,), "ipvs": (4,)}
"""Another cluster for each mode: together they have every kind of Service."""

in_every_mode = pytest.mark.parametrize("kind", KINDS, ids=[kind.name for kind in KINDS])


@in_every_mode
def test_nothing_is_found_where_nothing_is_wrong(kind: Kind) -> None:
    """Before anything is changed, all that differs is meant."""
    for seed in SEEDS[kind.name]:
        for subject in subjects(seed):
            assert list(unexplained(kind.untouched(subject))) == []


@in_every_mode
def test_mutants_are_found_and_named(kind: Kind) -> None:
    """Every mutant is found and named; one that is the same for a reason is not found."""
    results = list(mutants(kind, SEEDS[kind.name]))
    _hold(results)
    assert len(results) > 50
    for row in table(results):
        assert (row.found, row.named) == (row.mutants - row.equivalent,) * 2


@in_every_mode
def test_the_same_written_otherwise_is_equal(kind: Kind) -> None:
    """A rule set that is written otherwise, or has others' rules beside, is equal."""
    results = list(rewritten(kind, SEEDS[kind.name]))
    _hold(results)
    assert {mutant.operator for mutant in results} <= {rewrite.name for rewrite in kind.rewrites}


def _hold(results: list[Mutant]) -> None:
    print(text(table(results)) if results else "")
    assert [mutant.failure for mutant in results if mutant.failure] == []
