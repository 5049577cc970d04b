"""The endpoints of each Service as numbers; each number, and so each address, is used once."""

from collections.abc import Sequence
from itertools import count, cycle, islice

from tests.cluster.bench.sizes import Size
from tests.support.lab.plan import Addresses

ENDPOINT_NETWORKS = Addresses("10.128.0.0/9", "fd00:10:128::/48")
"""The networks of all endpoints; those of IPv6 have none."""


class EndpointNumbers:
    """The current endpoints of all Services; only ``grow`` and ``replace`` change them."""

    def __init__(self, endpoints: int) -> None:
        """Start without Services; each will have this number of endpoints."""
        self._endpoints = endpoints
        self._unused = count()
        self._numbers: list[list[int]] = []

    @property
    def services(self) -> int:
        """The number of Services."""
        return len(self._numbers)

    def numbers(self, index: int) -> list[int]:
        """Return the numbers of a Service's endpoints."""
        return list(self._numbers[index])

    def grow(self, size: Size) -> range:
        """Add Services up to a size with the same number of endpoints."""
        first = self.services
        for _ in range(first, size.services):
            self._numbers.append(self._new(self._endpoints))
        return range(first, self.services)

    def replace(self, total: int, indexes: Sequence[int]) -> dict[int, list[int]]:
        """Replace ``total`` endpoints of these Services in turn, at most all; return the new ones of each Service."""
        new: dict[int, list[int]] = {}
        for index in islice(cycle(indexes), min(total, len(indexes) * self._endpoints)):
            (number,) = self._new(1)
            self._numbers[index] = [*self._numbers[index][1:], number]
            new.setdefault(index, []).append(number)
        return new

    def _new(self, amount: int) -> list[int]:
        return list(islice(self._unused, amount))


def spread(services: int, amount: int) -> list[int]:
    """Return the indexes of at most ``amount`` Services, the first and the last one among them."""
    amount = min(services, amount)
    return [round(step * (services - 1) / max(1, amount - 1)) for step in range(amount)]
