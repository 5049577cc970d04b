"""What is said of troubles: each kind, and none of them too often."""

import logging

import pytest

from knft.apiserver.course import Next, Verdict
from knft.apiserver.troubles import AGAIN_SECONDS, REMIND_SECONDS, Troubles

REFUSED = Verdict(Next.BACK_OFF, "connection refused")
UNTRUSTED = Verdict(Next.BACK_OFF, "its certificate is not trusted")
BUSY = [Verdict(Next.BACK_OFF, f"it answers 429: request {number}", kind="429") for number in range(9)]


class Said:
    """Troubles, their clock, and the warnings that came of them."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "knft")
        self.now = 0.0
        self.troubles = Troubles(lambda: self.now)
        self._caplog = caplog

    def taken(self) -> list[str]:
        """Return what was said since the last time."""
        lines = [record.getMessage() for record in self._caplog.records]
        self._caplog.clear()
        return lines


def test_another_trouble_is_said_too(caplog: pytest.LogCaptureFixture) -> None:
    it = Said(caplog)
    for verdict in (REFUSED, REFUSED, UNTRUSTED, UNTRUSTED, *BUSY):
        it.troubles.begin("services", verdict)
        it.troubles.begin("nodes", verdict)
    assert it.taken() == [
        "the API server cannot be followed: connection refused; rules stay as they are",
        "the API server is still not followed, after 0 s: its certificate is not trusted",
        "the API server is still not followed, after 0 s: it answers 429: request 0",
    ]


def test_a_kind_is_said_once_a_minute_at_the_most(caplog: pytest.LogCaptureFixture) -> None:
    it = Said(caplog)
    for second in range(601):
        it.now = second
        it.troubles.begin("services", REFUSED)
        it.troubles.begin("nodes", UNTRUSTED)
    assert 10 <= len(it.taken()) <= 2 * (600 / AGAIN_SECONDS + 1)
    for name in ("services", "nodes"):
        it.troubles.end(name)
    assert it.taken() == ["the API server is followed again, after 600 s"]
    it.troubles.begin("services", REFUSED)
    assert len(it.taken()) == 1


def test_a_trouble_that_lasts_is_said_again_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    """Nobody finds in a log of days what was said once; and an hour is no flood."""
    it, forbidden = Said(caplog), Verdict(Next.BACK_OFF, "knft may not watch nodes", shared=False, kind="403")
    for second in range(0, 3600, 30):
        it.now = second
        it.troubles.begin("nodes", forbidden)
    assert it.taken() == ["knft may not watch nodes; it is tried again"] * int(3600 / REMIND_SECONDS)
    it.troubles.end("nodes")
    assert it.taken() == ["nodes are followed again"]
    for second in range(4000, 4000 + 3600, 30):
        it.now = second
        for name in ("services", "endpointslices", "nodes"):
            it.troubles.begin(name, REFUSED)
    first, *later = it.taken()
    assert first == "the API server cannot be followed: connection refused; rules stay as they are"
    assert later == [
        f"the API server is still not followed, after {seconds} s: connection refused"
        for seconds in range(300, 3600, 300)
    ]


def test_one_resource_alone_is_held_to_the_same(caplog: pytest.LogCaptureFixture) -> None:
    it = Said(caplog)
    for code in ("403", "400", "403", "400"):
        it.troubles.begin("nodes", Verdict(Next.BACK_OFF, f"it answers {code}", shared=False, kind=code))
    assert it.taken() == ["it answers 403; it is tried again", "it answers 400; it is tried again"]
    it.now += AGAIN_SECONDS
    it.troubles.begin("nodes", Verdict(Next.BACK_OFF, "it answers 403", shared=False, kind="403"))
    it.troubles.end("nodes")
    assert it.taken() == ["it answers 403; it is tried again", "nodes are followed again"]


def test_troubles_of_ever_new_kinds_are_not_said_without_end(caplog: pytest.LogCaptureFixture) -> None:
    it = Said(caplog)
    for number in range(1000):
        it.troubles.begin("services", Verdict(Next.BACK_OFF, f"number {number}"))
    assert len(it.taken()) <= 100
