"""What counts as memory that grows."""

from random import Random

import pytest

from tests.soak.memory import ALLOWED, steady_growth

SAMPLES = 20
STEPS = 2500
"""Between two samples."""
MIB = 1 << 20


def _noise(seed: int) -> list[float]:
    chance = Random(seed)  # noqa: S311 - to be had again
    return [156 + chance.uniform(-0.2, 0.2) for _ in range(SAMPLES)]


@pytest.mark.parametrize("seed", range(20))
def test_a_leak_of_a_hundred_bytes_a_step_is_found(seed: int) -> None:
    leaking = [sample + number * STEPS * 100 / MIB for number, sample in enumerate(_noise(seed))]
    assert steady_growth(leaking) > ALLOWED


@pytest.mark.parametrize("seed", range(20))
def test_one_that_comes_in_pieces_is_found_too(seed: int) -> None:
    """As an allocator asks the kernel for more, one MiB at a time."""
    leaking = [sample + number * STEPS * 100 // MIB for number, sample in enumerate(_noise(seed))]
    assert steady_growth(leaking) > ALLOWED


@pytest.mark.parametrize("at", [1, 5, 10, 15, 18])
def test_a_single_step_is_none(at: int) -> None:
    stepped = [sample + (3 if number >= at else 0) for number, sample in enumerate(_noise(at))]
    assert steady_growth(stepped) < ALLOWED
