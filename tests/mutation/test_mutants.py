"""The comparison finds faults in captures, names their Services, and accepts equivalent captures.

``make mutants`` tests more clusters, over 1 000 mutants.
"""

import pytest

from tests.mutation.campaign import (
    MUTATED_MODES,
    Mutant,
    MutatedMode,
    apply_rewrites,
    format_table,
    make_mutants,
    summarise,
)
from tests.mutation.evaluation import unexpected_differences
from tests.mutation.subjects import subjects

SEEDS = {"iptables": (1,), "nftables 1.35": (2,), "nftables 1.36": (3,), "ipvs": (4,)}
"""The seeds of each mode; together their clusters have every kind of Service."""

in_every_mode = pytest.mark.parametrize("target", MUTATED_MODES, ids=[target.name for target in MUTATED_MODES])


@in_every_mode
def test_unchanged_captures_have_only_expected_differences(target: MutatedMode) -> None:
    """Without mutations all differences are expected."""
    for seed in SEEDS[target.name]:
        for subject in subjects(seed):
            assert list(unexpected_differences(target.unchanged_sides(subject))) == []


@in_every_mode
def test_every_mutant_is_found_and_its_service_named(target: MutatedMode) -> None:
    """Every mutant is found and its Service named; an equivalent mutant is not found."""
    results = list(make_mutants(target, SEEDS[target.name]))
    _assert_no_failures(results)
    assert len(results) > 50
    for row in summarise(results):
        assert (row.found, row.named) == (row.mutants - row.equivalent,) * 2


@in_every_mode
def test_equivalent_rewrites_are_equal(target: MutatedMode) -> None:
    """Captures that are written differently, or that have rules of other programs, are equal."""
    results = list(apply_rewrites(target, SEEDS[target.name]))
    _assert_no_failures(results)
    assert {mutant.operator for mutant in results} <= {rewrite.name for rewrite in target.rewrites}


def _assert_no_failures(results: list[Mutant]) -> None:
    print(format_table(summarise(results)) if results else "")
    assert [mutant.failure for mutant in results if mutant.failure] == []
