"""AddressSearch: finds the addresses of endpoints in binary rules, fast enough for tables of 100 MB."""

from collections.abc import Iterable, Iterator

from tests.cluster.churn.numbered_endpoints import FIRST

_LENGTH = 4


class AddressSearch:
    """The addresses that have not been found yet."""

    def __init__(self, numbers: Iterable[int]) -> None:
        """Search for the addresses of endpoints with these numbers, of which there must be one."""
        self._missing = {(FIRST + number).to_bytes(_LENGTH) for number in numbers}
        # All addresses begin like the lowest and the highest one.
        low, high = min(self._missing), max(self._missing)
        self._prefix = low[: next((place for place in range(_LENGTH) if low[place] != high[place]), _LENGTH)]

    @property
    def missing(self) -> int:
        """How many addresses have not been found."""
        return len(self._missing)

    def search(self, rules: bytes) -> None:
        """Look for the addresses, in network byte order."""
        self._missing.difference_update(self._candidates(rules))

    def _candidates(self, rules: bytes) -> Iterator[bytes]:
        place = rules.find(self._prefix)
        while place >= 0:
            yield rules[place : place + _LENGTH]
            place = rules.find(self._prefix, place + 1)
