"""The rate of requests to a server that works, fails or recovers, with a fake clock."""

import itertools
import random
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as some

from knft.apiserver.limits import MAX_DELAY, RESET_AFTER_SECONDS, Backoff, IdleTimeout, TokenBucket
from knft.apiserver.list_watch import (
    ListWatch,
    ListWatchRequest,
    RequestKind,
    RetryDecision,
    RetryWhen,
    WatchTimeouts,
    jittered,
    retry_delay,
)
from knft.apiserver.resources import SERVICES
from knft.errors import ApiServerError, ApiStatusError

HOUR = 3600.0


def seeded_fractions(seed: int) -> Callable[[], float]:
    return random.Random(seed).random  # noqa: S311 - for a test


def test_backoff_doubles_up_to_the_maximum() -> None:
    backoff = Backoff(lambda: 1.0)
    assert [backoff.next_delay(0) for _ in range(8)] == pytest.approx([0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30, 30])


def test_backoff_has_jitter() -> None:
    assert Backoff(lambda: 0.0).next_delay(0) == pytest.approx(0.4)
    assert len({Backoff(seeded_fractions(seed)).next_delay(0) for seed in range(100)}) == 100


def test_backoff_resets_after_a_healthy_time() -> None:
    backoff = Backoff(lambda: 1.0)
    for now in range(5):
        backoff.next_delay(now)
    assert backoff.next_delay(4 + RESET_AFTER_SECONDS - 1) == pytest.approx(25.6)
    assert backoff.next_delay(4 + 2 * RESET_AFTER_SECONDS) == pytest.approx(0.8)


@given(some.lists(some.floats(0, 3), min_size=1, max_size=60), some.integers(1, 10), some.integers(1, 20))
def test_token_bucket_limits_the_rate(gaps: list[float], qps: int, burst: int) -> None:
    bucket, now, let = TokenBucket(qps, burst), 0.0, list[float]()
    for gap in gaps:
        now += gap
        let.append(now + bucket.reserve(now))
    assert let == sorted(let)
    for start in range(len(let)):
        for end in range(start, len(let)):
            assert end - start + 1 <= burst + (let[end] - let[start]) * qps + 1e-6


def test_token_bucket_without_limit() -> None:
    bucket = TokenBucket(0, 0)
    assert all(bucket.reserve(0) == 0 and bucket.allow(0) for _ in range(1000))


def test_allow_takes_a_token_if_there_is_one() -> None:
    bucket = TokenBucket(0.5, 2)
    assert [bucket.allow(now) for now in (0, 0, 0, 1, 2, 2, 100, 100, 100)] == [
        *(True, True, False),
        *(False, True, False),
        *(True, True, False),
    ]


class Client:
    """The ListWatch of Services without sockets: it has listed, and then the server fails."""

    def __init__(self, seed: int) -> None:
        random_fraction = seeded_fractions(seed)
        self.list_watch, self.backoff, self.random_fraction = (
            ListWatch(SERVICES, random_fraction),
            Backoff(random_fraction),
            random_fraction,
        )
        self.list_watch.on_listed("1000")

    def request_times_during(self, outage: float, error: ApiServerError) -> list[float]:
        """Return the times of its requests while the server fails with an error, and of the first after that."""
        now, times = self.random_fraction(), list[float]()
        while True:
            times.append(now)
            if now >= outage:
                return times
            decision = self.list_watch.on_error(self.list_watch.next_request(), error, now=now)
            now += self.pause(decision, now)

    def pause(self, decision: RetryDecision, now: float) -> float:
        return retry_delay(decision, self.backoff, self.random_fraction, now)


@pytest.mark.parametrize(
    "error",
    [
        ApiServerError("connection refused"),
        ApiStatusError("503", 503),
        ApiStatusError("429", 429),
        ApiStatusError("401", 401),
    ],
)
def test_hour_long_outage_causes_few_requests_and_no_simultaneous_retries(error: ApiServerError) -> None:
    clients = [Client(seed) for seed in range(1000)]
    request_times = [client.request_times_during(HOUR, error) for client in clients]
    assert all(HOUR / MAX_DELAY < len(times) < 2 * HOUR / MAX_DELAY + 20 for times in request_times)
    back = Counter(int(times[-1] - HOUR) for times in request_times)
    assert max(back) < MAX_DELAY
    # A thousand clients within half a minute: no second has many of them.
    assert max(back.values()) < 100
    # No client lists: each resumes its watch.
    assert {client.list_watch.next_request().kind for client in clients} == {RequestKind.WATCH}
    assert {dict(client.list_watch.next_request().query)["resourceVersion"] for client in clients} == {"1000"}


def test_retry_after_has_jitter() -> None:
    error = ApiStatusError("429", 429, retry_after=10)
    pauses = [Client(seed).request_times_during(20, error)[1] for seed in range(1000)]
    assert max(Counter(int(pause * 10) for pause in pauses).values()) < 100
    assert min(pauses) > 10


def test_short_retry_after_has_jitter_and_backoff() -> None:
    error = ApiStatusError("429", 429, retry_after=1)
    request = [Client(seed).request_times_during(HOUR, error) for seed in range(1000)]
    pauses = [later - sooner for times in request for sooner, later in itertools.pairwise(times)]
    assert min(pauses) >= 1
    assert all(len(times) < 2 * HOUR / MAX_DELAY + 20 for times in request)
    first = Counter(int((times[1] - times[0]) * 10) for times in request)
    assert max(first.values()) < 200


def test_only_short_watches_increase_the_backoff() -> None:
    client, brief = Client(1), WatchTimeouts().short_lived
    request, error = client.list_watch.next_request(), ApiServerError("it breaks off")

    def pauses(lasted: float | None, count: int) -> list[float]:
        decisions = [client.list_watch.on_error(request, error, lasted=lasted) for _ in range(count)]
        return [client.pause(decision, 0) for decision in decisions]

    assert pauses(None, 8)[-1] > MAX_DELAY / 2
    assert max(pauses(brief, 100)) <= 1
    assert len(set(pauses(brief, 100))) == 100
    assert pauses(brief - 0.1, 1)[0] <= 0.8
    assert pauses(brief - 0.1, 8)[-1] > MAX_DELAY / 2


def test_interrupted_list_backs_off() -> None:
    """knft waits before the next list, because a list is expensive for the server."""
    list_watch = ListWatch(SERVICES, seeded_fractions(1))
    assert (
        list_watch.on_error(list_watch.next_request(), ApiServerError("it breaks off"), lasted=20).when
        is RetryWhen.BACK_OFF
    )


def expire(list_watch: ListWatch, now: float) -> RetryDecision:
    list_watch.on_listed("1000")
    return list_watch.on_error(list_watch.next_request(), ApiStatusError("410", 410), lasted=0, now=now)


def test_first_expiry_is_retried_soon_and_the_next_back_off() -> None:
    list_watch = ListWatch(SERVICES, seeded_fractions(1))
    times, decisions = WatchTimeouts(), [expire(list_watch, now) for now in range(5)]
    assert [decision.when for decision in decisions] == [RetryWhen.AFTER_DELAY, *[RetryWhen.BACK_OFF] * 4]
    assert [bool(decision.warning) for decision in decisions] == [False, True, False, False, False]
    assert expire(list_watch, 4 + times.repeated_expiry - 1).when is RetryWhen.BACK_OFF
    assert expire(list_watch, 4 + 3 * times.repeated_expiry).when is RetryWhen.AFTER_DELAY


def send_bookmarks(idle_timeout: IdleTimeout, seconds: float, start: float = 0.0) -> float:
    """Receive data every ``seconds`` for ten minutes; return the time of the last."""
    now = start
    idle_timeout.watch_started(now)
    while now < start + 600:
        now += seconds
        idle_timeout.data_received(now)
    return now


def limits(list_watch: ListWatch) -> tuple[ListWatchRequest, float]:
    list_watch.on_listed("1000")
    request = list_watch.next_request()
    return request, request.idle_timeout


def test_idle_timeout_is_short_for_a_server_with_bookmarks() -> None:
    idle_timeout, (request, longest) = (
        IdleTimeout(WatchTimeouts().regular_idle),
        limits(ListWatch(SERVICES, seeded_fractions(1))),
    )
    assert idle_timeout.seconds(longest) == longest == request.server_timeout + WatchTimeouts().idle_grace
    now = send_bookmarks(idle_timeout, 60)
    assert idle_timeout.seconds(longest) == 180
    # The next watches of this server have the short timeout too, until one hangs.
    idle_timeout.watch_started(now + 1)
    assert idle_timeout.seconds(longest) == 180
    idle_timeout.forget()
    assert idle_timeout.seconds(longest) == longest


def test_idle_timeout_is_long_for_an_irregular_server() -> None:
    idle_timeout = IdleTimeout(WatchTimeouts().regular_idle)
    send_bookmarks(idle_timeout, 200)
    assert idle_timeout.seconds(500) == 500
    # Many events at once are not regular.
    for _ in range(1000):
        idle_timeout.data_received(800)
    assert idle_timeout.seconds(500) == 500


def test_watch_durations_are_spread() -> None:
    seconds = [Client(seed).list_watch.next_request().server_timeout for seed in range(1000)]
    times = WatchTimeouts()
    assert times.min_watch <= min(seconds) < max(seconds) <= times.max_watch
    assert max(Counter(int(length) for length in seconds).values()) < 20


def test_immediately_ended_watches_back_off() -> None:
    client, now, count = Client(1), 0.0, 0
    while now < HOUR:
        decision = client.list_watch.on_stream_end(client.list_watch.next_request(), 0.01)
        assert decision.when is RetryWhen.BACK_OFF
        now += client.backoff.next_delay(now)
        count += 1
    assert count < 2 * HOUR / MAX_DELAY + 20


def test_reconnections_to_a_stopped_server_are_spread_over_time() -> None:
    for seed in range(10):
        client = Client(seed)
        request = client.list_watch.next_request()
        assert client.list_watch.on_stream_end(request, 100).when is RetryWhen.AFTER_DELAY
        assert 0 < jittered(client.list_watch.on_stream_end(request, 100).delay, client.random_fraction) < 1
        assert client.list_watch.on_stream_end(request, request.server_timeout).when is RetryWhen.IMMEDIATELY
