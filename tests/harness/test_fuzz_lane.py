"""The fuzzer, briefly, and everything that it has found."""

import pytest

from tests.fuzz.__main__ import mutate_for
from tests.fuzz.corpus import corpus
from tests.fuzz.target import hold

SECONDS = 15.0
SEED = 20261121


@pytest.mark.parametrize("data", [pytest.param(data, id=str(number)) for number, data in enumerate(corpus())])
def test_the_corpus_holds(data: bytes) -> None:
    hold(data)


def test_fifteen_seconds_find_nothing() -> None:
    """Seeded, so that a failure can be had again; ``make fuzz`` takes ten minutes and another seed each time."""
    assert mutate_for(SECONDS, SEED) > 100
