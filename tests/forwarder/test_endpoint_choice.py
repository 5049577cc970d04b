"""EndpointChoice: random endpoints, and session affinity."""

from collections import Counter

import pytest

from knft.forwarder.endpoint_choice import EndpointChoice, Target

A, B, C = ("10.244.1.1", 80), ("10.244.1.2", 80), ("10.244.1.3", 80)


def _chosen(choice: EndpointChoice, *times: float) -> list[Target]:
    return [choice.choose(now) for now in times]


def test_each_endpoint_gets_its_share() -> None:
    choice = EndpointChoice([A, B, C], 0)
    counts = Counter(_chosen(choice, *range(3000)))
    assert counts.keys() == {A, B, C}
    assert min(counts.values()) > 800


@pytest.fixture
def first_of_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the random choice the first endpoint."""
    monkeypatch.setattr("random.choice", lambda endpoints: endpoints[0])


@pytest.mark.usefixtures("first_of_choices")
class TestAffinity:
    """With ClientIP affinity one endpoint gets all connections."""

    def test_endpoint_stays_until_no_connection_came_for_the_timeout(self) -> None:
        choice = EndpointChoice([A, B], 10)
        assert choice.choose(100.0) == A
        choice.update([B, A], 10)
        assert _chosen(choice, 110.0, 120.0, 120.0, 130.1) == [A, A, A, B]

    def test_endpoint_is_replaced_when_it_is_removed(self) -> None:
        choice = EndpointChoice([A, B], 10)
        assert choice.choose(1.0) == A
        choice.update([B], 10)
        assert choice.choose(2.0) == B
        choice.update([A, B], 10)
        assert choice.choose(3.0) == B

    @pytest.mark.parametrize("timeout", [0, 20])
    def test_changed_timeout_ends_it(self, timeout: int) -> None:
        choice = EndpointChoice([A, B], 10)
        assert choice.choose(1.0) == A
        choice.update([B, A], timeout)
        assert choice.choose(2.0) == B

    def test_without_affinity_no_endpoint_stays(self) -> None:
        choice = EndpointChoice([A, B], 0)
        assert choice.choose(1.0) == A
        choice.update([B, A], 0)
        assert choice.choose(1.0) == B
