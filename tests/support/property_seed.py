"""Where Hypothesis draws from: the same examples in every run of the gate, others in each run of ``make explore``."""

from collections.abc import Callable
from typing import Any

from hypothesis import seed, settings


def gate_seed(number: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate a property test inside a test: the gate draws from this seed, ``make explore`` at random."""
    return seed(number) if settings.get_profile("gate") is settings.default else lambda test: test
