"""The search for refused names: how many commits it makes, and when it stops to search."""

from collections.abc import Sequence

import pytest

from knft.errors import KernelError, LibraryDiedError, UnavailableError
from knft.nft.objects import NamedObject
from knft.sync.quarantine import bisect

CHAINS = [NamedObject("chain", str(number)) for number in range(100)]
REFUSED = {CHAINS[3], CHAINS[77]}


def test_refused_names_are_found() -> None:
    committed: list[NamedObject] = []

    def commit(batch: Sequence[NamedObject]) -> None:
        if REFUSED & set(batch):
            msg = "refused"
            raise KernelError(msg)
        committed.extend(batch)

    assert bisect(CHAINS, commit).keys() == REFUSED
    assert committed == [chain for chain in CHAINS if chain not in REFUSED]
    assert bisect((), commit) == {}


def test_search_ends_after_many_deaths_of_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each death costs a new worker process. The last batch is not divided any more."""
    monkeypatch.setattr("knft.sync.quarantine.MAX_LIBRARY_DEATHS", 2)
    calls: list[int] = []

    def commit(batch: Sequence[NamedObject]) -> None:
        calls.append(len(batch))
        msg = "died"
        raise LibraryDiedError(msg)

    assert bisect(CHAINS[:4], commit).keys() == set(CHAINS[:4])
    assert calls == [4, 2, 1, 1, 2]


def test_other_unavailability_is_raised() -> None:
    def commit(_: Sequence[NamedObject]) -> None:
        msg = "timeout"
        raise UnavailableError(msg)

    with pytest.raises(UnavailableError, match="timeout"):
        bisect(CHAINS, commit)
