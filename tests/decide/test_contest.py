"""The owner of a frontend among many claims, while claims come and go."""

from random import Random

import pytest
from msgspec import structs

from knft.decide.contest import Claim, Contest
from knft.decide.frontends import LosingClaim
from knft.model.plan import Frontend, FrontendKind
from tests.support.kube_objects import port_name


def _claim(number: int, created: str = "") -> Claim:
    frontend = Frontend(FrontendKind.EXTERNAL_IP, "203.0.113.1", "TCP", 80)
    return Claim(frontend, port_name(service=f"s{number:03}"), created)


@pytest.mark.parametrize("order", ["ascending", "descending", "random"])
def test_owner_is_the_smallest_rank_after_many_removals(order: str) -> None:
    """The heap of ranks is rebuilt meanwhile."""
    claims = [_claim(number) for number in range(40)]
    removed = [*claims[:-3]]
    if order == "descending":
        removed.reverse()
    elif order == "random":
        Random(7).shuffle(removed)  # noqa: S311 - reproducible
    contest, left = Contest(reversed(claims)), set(range(40))
    for claim in removed:
        contest.remove(claim.name)
        left.remove(claims.index(claim))
        assert contest.owner == claims[min(left)]
    assert len(contest) == 3
    assert contest.losing_count == 2


def test_ranks_of_removed_claims_take_limited_memory() -> None:
    contest = Contest([_claim(0)])
    for number in range(1, 100):
        contest.put(_claim(number))
        contest.remove(_claim(number).name)
        assert len(contest._heap) <= 2


def test_replaced_claim_loses_its_rank() -> None:
    contest = Contest([_claim(1, "2026-01-01T00:00:00Z"), _claim(2, "2026-01-02T00:00:00Z")])
    contest.put(_claim(1, "2026-01-03T00:00:00Z"))
    assert contest.owner == _claim(2, "2026-01-02T00:00:00Z")


def test_claims_of_the_owners_service_do_not_lose() -> None:
    first, second = _claim(1), structs.replace(_claim(1), name=port_name("https", service="s001"))
    contest = Contest([first, second, _claim(2), _claim(3)])
    counts = [contest.losing_count]
    contest.put(second)
    counts.append(contest.losing_count)
    contest.remove(first.name)
    counts.append(contest.losing_count)
    contest.put(first)
    contest.remove(_claim(2).name)
    counts.append(contest.losing_count)
    contest.remove(first.name)
    contest.remove(second.name)
    counts.append(contest.losing_count)
    assert contest.owner == _claim(3)
    contest.put(first)
    counts.append(contest.losing_count)
    assert counts == [2, 2, 2, 1, 0, 1]


def test_removal_of_an_unknown_claim_changes_nothing() -> None:
    contest = Contest([_claim(1), _claim(2)])
    contest.remove(_claim(3).name)
    assert (len(contest), contest.losing_count) == (2, 1)
    assert contest.get(_claim(3).name) is None
    assert set(contest) == {_claim(1), _claim(2)}


def test_losing_claim_as_text() -> None:
    loser, owner = port_name(service="a"), port_name(service="b")
    node_port = Frontend(FrontendKind.NODE_PORT, None, "TCP", 30080)
    for frontend, where in ((node_port, "NodePort 30080/TCP"), (_claim(1).frontend, "203.0.113.1 80/TCP")):
        assert str(LosingClaim(frontend, loser, owner)) == (
            f"Service port default/a:http does not get frontend {where}, which Service port default/b:http owns"
        )
