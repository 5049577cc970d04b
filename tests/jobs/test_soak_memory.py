"""The soak tests detect memory that grows."""

import gc
from random import Random

import pytest

from tests.soak.memory import ALLOWED, steady_growth, used_mib

SAMPLES = 20
STEPS = 2500
"""Steps between two samples."""
MIB = 1 << 20


def _noise(seed: int) -> list[float]:
    rng = Random(seed)  # noqa: S311 - reproducible
    return [156 + rng.uniform(-0.2, 0.2) for _ in range(SAMPLES)]


@pytest.mark.parametrize("seed", range(20))
def test_leak_of_100_bytes_a_step_is_detected(seed: int) -> None:
    leaking = [sample + number * STEPS * 100 / MIB for number, sample in enumerate(_noise(seed))]
    assert steady_growth(leaking) > ALLOWED


@pytest.mark.parametrize("seed", range(20))
def test_leak_in_steps_of_one_mib_is_detected(seed: int) -> None:
    """Allocators request memory from the kernel in large pieces."""
    leaking = [sample + number * STEPS * 100 // MIB for number, sample in enumerate(_noise(seed))]
    assert steady_growth(leaking) > ALLOWED


@pytest.mark.parametrize("at", [1, 5, 10, 15, 18])
def test_single_increase_is_no_leak(at: int) -> None:
    stepped = [sample + (3 if number >= at else 0) for number, sample in enumerate(_noise(at))]
    assert steady_growth(stepped) < ALLOWED


@pytest.mark.parametrize("piece", [200, 1 << 16], ids=["small objects", "buffers"])
def test_memory_in_use_is_what_objects_and_buffers_have(piece: int) -> None:
    gc.collect()
    before = used_mib()
    held = [bytes(piece) for _ in range(4 * MIB // piece)]
    assert 3.9 <= used_mib() - before < 8
    held.clear()
    assert used_mib() - before < 1
