"""A short run of the fuzzer, and its corpus with all earlier findings."""

import pytest

from tests.fuzz.__main__ import fuzz_by_mutation
from tests.fuzz.corpus import corpus
from tests.fuzz.target import check_input

INPUTS = 300
SEED = 20261121


@pytest.mark.parametrize("data", [pytest.param(data, id=str(number)) for number, data in enumerate(corpus())])
def test_corpus_passes_all_checks(data: bytes) -> None:
    check_input(data)


def test_mutated_inputs_pass_all_checks() -> None:
    """The seed is fixed, so a failure is reproducible; ``make fuzz`` runs for ten minutes with a random seed."""
    assert fuzz_by_mutation(SEED, inputs=INPUTS) == INPUTS
