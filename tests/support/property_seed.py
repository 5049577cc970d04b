"""The seed of property tests inside tests: the same in every ``make test``, random in ``make explore``."""

from collections.abc import Callable
from typing import Any

from hypothesis import seed, settings


def has_fixed_seeds() -> bool:
    """Whether the examples are those of ``make test``."""
    return settings.get_profile("gate") is settings.default


def fixed_seed(number: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate a property test inside a test: ``make test`` uses this seed, ``make explore`` a random one."""
    return seed(number) if has_fixed_seeds() else lambda test: test
