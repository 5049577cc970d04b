"""How often an API server is asked that answers, that does not, and that comes back: with a clock of the test's own."""

import itertools
import random
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as some

from knft.apiserver.course import Ask, Course, Form, Next, Times, Verdict, jittered, pause
from knft.apiserver.limits import HEALTHY_SECONDS, LONGEST_PAUSE, Backoff, Pulse, TokenBucket
from knft.apiserver.resources import SERVICES
from knft.errors import ClusterError, RefusedError

HOUR = 3600.0


def lots(seed: int) -> Callable[[], float]:
    return random.Random(seed).random  # noqa: S311 - for a test


def test_pauses_double_up_to_the_longest() -> None:
    backoff = Backoff(lambda: 1.0)
    assert [backoff.pause(0) for _ in range(8)] == pytest.approx([0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30, 30])


def test_no_two_clients_pause_alike_and_none_less_than_half() -> None:
    assert Backoff(lambda: 0.0).pause(0) == pytest.approx(0.4)
    assert len({Backoff(lots(seed)).pause(0) for seed in range(100)}) == 100


def test_pauses_begin_anew_after_a_healthy_while() -> None:
    backoff = Backoff(lambda: 1.0)
    for now in range(5):
        backoff.pause(now)
    assert backoff.pause(4 + HEALTHY_SECONDS - 1) == pytest.approx(25.6)
    assert backoff.pause(4 + 2 * HEALTHY_SECONDS) == pytest.approx(0.8)


@given(some.lists(some.floats(0, 3), min_size=1, max_size=60), some.integers(1, 10), some.integers(1, 20))
def test_a_bucket_lets_through_what_it_may(gaps: list[float], qps: int, burst: int) -> None:
    bucket, now, let = TokenBucket(qps, burst), 0.0, list[float]()
    for gap in gaps:
        now += gap
        let.append(now + bucket.take(now))
    assert let == sorted(let)
    for start in range(len(let)):
        for end in range(start, len(let)):
            assert end - start + 1 <= burst + (let[end] - let[start]) * qps + 1e-6


def test_a_bucket_without_a_limit() -> None:
    bucket = TokenBucket(0, 0)
    assert all(bucket.take(0) == 0 and bucket.allows(0) for _ in range(1000))


def test_a_bucket_that_is_asked_and_not_waited_for() -> None:
    bucket = TokenBucket(0.5, 2)
    assert [bucket.allows(now) for now in (0, 0, 0, 1, 2, 2, 100, 100, 100)] == [
        *(True, True, False),
        *(False, True, False),
        *(True, True, False),
    ]


class Client:
    """One follower of Services, without sockets: it has listed, and then nobody answers."""

    def __init__(self, seed: int) -> None:
        draw = lots(seed)
        self.course, self.backoff, self.draw = Course(SERVICES, draw), Backoff(draw), draw
        self.course.listed("1000")

    def asks_while(self, away: float, error: ClusterError) -> list[float]:
        """Return when it asks while the server fails so, and the first time after."""
        now, asked = self.draw(), list[float]()
        while True:
            asked.append(now)
            if now >= away:
                return asked
            verdict = self.course.failed(self.course.ask(), error, now=now)
            now += self.pause(verdict, now)

    def pause(self, verdict: Verdict, now: float) -> float:
        return pause(verdict, self.backoff, self.draw, now)


@pytest.mark.parametrize(
    "error",
    [ClusterError("connection refused"), RefusedError("503", 503), RefusedError("429", 429), RefusedError("401", 401)],
)
def test_an_hour_away_costs_few_requests_and_no_storm_when_it_is_over(error: ClusterError) -> None:
    clients = [Client(seed) for seed in range(1000)]
    asked = [client.asks_while(HOUR, error) for client in clients]
    assert all(HOUR / LONGEST_PAUSE < len(times) < 2 * HOUR / LONGEST_PAUSE + 20 for times in asked)
    back = Counter(int(times[-1] - HOUR) for times in asked)
    assert max(back) < LONGEST_PAUSE
    # A thousand within half a minute: far from all at once, in any second.
    assert max(back.values()) < 100
    # Nothing is listed: each goes on where it was.
    assert {client.course.ask().form for client in clients} == {Form.WATCH}
    assert {dict(client.course.ask().query)["resourceVersion"] for client in clients} == {"1000"}


def test_retry_after_spreads_too() -> None:
    error = RefusedError("429", 429, retry_after=10)
    pauses = [Client(seed).asks_while(20, error)[1] for seed in range(1000)]
    assert max(Counter(int(pause * 10) for pause in pauses).values()) < 100
    assert min(pauses) > 10


def test_a_short_retry_after_is_waited_for_and_spread_and_grows() -> None:
    error = RefusedError("429", 429, retry_after=1)
    asked = [Client(seed).asks_while(HOUR, error) for seed in range(1000)]
    pauses = [later - sooner for times in asked for sooner, later in itertools.pairwise(times)]
    assert min(pauses) >= 1
    assert all(len(times) < 2 * HOUR / LONGEST_PAUSE + 20 for times in asked)
    first = Counter(int((times[1] - times[0]) * 10) for times in asked)
    assert max(first.values()) < 200


def test_only_what_breaks_off_soon_makes_pauses_grow() -> None:
    client, brief = Client(1), Times().brief
    ask, error = client.course.ask(), ClusterError("it breaks off")

    def pauses(lasted: float | None, count: int) -> list[float]:
        verdicts = [client.course.failed(ask, error, lasted=lasted) for _ in range(count)]
        return [client.pause(verdict, 0) for verdict in verdicts]

    assert pauses(None, 8)[-1] > LONGEST_PAUSE / 2
    assert max(pauses(brief, 100)) <= 1
    assert len(set(pauses(brief, 100))) == 100
    assert pauses(brief - 0.1, 1)[0] <= 0.8
    assert pauses(brief - 0.1, 8)[-1] > LONGEST_PAUSE / 2


def test_a_list_that_breaks_off_is_not_asked_for_again_at_once() -> None:
    """It is much work for a server each time."""
    course = Course(SERVICES, lots(1))
    assert course.failed(course.ask(), ClusterError("it breaks off"), lasted=20).next is Next.BACK_OFF


def expire(course: Course, now: float) -> Verdict:
    course.listed("1000")
    return course.failed(course.ask(), RefusedError("410", 410), lasted=0, now=now)


def test_the_first_expiry_is_soon_over_and_the_next_ones_later() -> None:
    course = Course(SERVICES, lots(1))
    times, verdicts = Times(), [expire(course, now) for now in range(5)]
    assert [verdict.next for verdict in verdicts] == [Next.AFTER, *[Next.BACK_OFF] * 4]
    assert [bool(verdict.remark) for verdict in verdicts] == [False, True, False, False, False]
    assert expire(course, 4 + times.expired - 1).next is Next.BACK_OFF
    assert expire(course, 4 + 3 * times.expired).next is Next.AFTER


def minutes(pulse: Pulse, seconds: float, start: float = 0.0) -> float:
    """Have something come so often for ten minutes; return when it came last."""
    now = start
    pulse.begin(now)
    while now < start + 600:
        now += seconds
        pulse.felt(now)
    return now


def limits(course: Course) -> tuple[Ask, float]:
    course.listed("1000")
    ask = course.ask()
    return ask, ask.quiet_seconds


def test_a_server_with_bookmarks_is_missed_after_three_minutes() -> None:
    pulse, (ask, longest) = Pulse(Times().regular), limits(Course(SERVICES, lots(1)))
    assert pulse.quiet_seconds(longest) == longest == ask.seconds + Times().grace
    now = minutes(pulse, 60)
    assert pulse.quiet_seconds(longest) == 180
    # Other watches of the same server are held to it, until one was hung.
    pulse.begin(now + 1)
    assert pulse.quiet_seconds(longest) == 180
    pulse.missed()
    assert pulse.quiet_seconds(longest) == longest


def test_a_server_with_nothing_to_tell_may_be_quiet() -> None:
    pulse = Pulse(Times().regular)
    minutes(pulse, 200)
    assert pulse.quiet_seconds(500) == 500
    # Many at once are not regular.
    for _ in range(1000):
        pulse.felt(800)
    assert pulse.quiet_seconds(500) == 500


def test_watches_end_one_after_the_other() -> None:
    seconds = [Client(seed).course.ask().seconds for seed in range(1000)]
    times = Times()
    assert times.shortest_watch <= min(seconds) < max(seconds) <= times.longest_watch
    assert max(Counter(int(length) for length in seconds).values()) < 20


def test_a_server_that_ends_every_watch_at_once_is_not_asked_without_end() -> None:
    client, now, count = Client(1), 0.0, 0
    while now < HOUR:
        verdict = client.course.ended(client.course.ask(), 0.01)
        assert verdict.next is Next.BACK_OFF
        now += client.backoff.pause(now)
        count += 1
    assert count < 2 * HOUR / LONGEST_PAUSE + 20


def test_a_server_that_goes_down_does_not_get_everybody_back_at_once() -> None:
    for seed in range(10):
        client = Client(seed)
        ask = client.course.ask()
        assert client.course.ended(ask, 100).next is Next.AFTER
        assert 0 < jittered(client.course.ended(ask, 100).seconds, client.draw) < 1
        assert client.course.ended(ask, ask.seconds).next is Next.NOW
