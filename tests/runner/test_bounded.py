"""The BoundedFrequencyRunner on a fake clock, and once on the monotonic clock (docs/behaviour/node.md#runner)."""

import threading
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knft.runner.bounded import BoundedFrequencyRunner, Intervals, RunBudget
from knft.runner.clock import MonotonicClock
from tests.runner.runner_thread import THREAD_TIMEOUT, RunnerThread
from tests.support.kube_objects import parametrize_cases

DEFAULT = Intervals(minimum=1, retry=5, maximum=10)
SHORT, NONE = Intervals(minimum=0.02, retry=5, maximum=10), Intervals(minimum=0, retry=5, maximum=10)
RETRY_SHORTER = Intervals(minimum=2, retry=1, maximum=10)
RETRY_LONGER = Intervals(minimum=1, retry=50, maximum=10)


class RunsCase(NamedTuple):
    """Times of the requests, and the start times of the runs until ``until``; runs numbered in ``failing`` fail."""

    requests: tuple[float, ...]
    until: float
    starts: tuple[float, ...]
    failing: tuple[int, ...] = ()
    duration: float = 0
    intervals: Intervals = DEFAULT


SCHEDULES = {
    "first request runs at once": RunsCase((0,), 9, (0,)),
    "late first request runs at once": RunsCase((3,), 12, (3,)),
    "no run before max without a request": RunsCase((), 9.999, ()),
    "runs at max without a request": RunsCase((), 10, (10,)),
    "runs at each max without requests": RunsCase((), 30, (10, 20, 30)),
    "request before min waits": RunsCase((0, 0.25), 0.999, (0,)),
    "waiting request runs at min": RunsCase((0, 0.25), 9, (0, 1)),
    "several requests before min cause one run": RunsCase((0, 0.25, 0.5, 0.75), 9, (0, 1)),
    "several requests before each min cause one run each": RunsCase((0, 0.25, 0.5, 1.25, 1.5), 9, (0, 1, 2)),
    "request at min runs at once": RunsCase((0, 1), 9, (0, 1)),
    "request after min runs at once": RunsCase((0, 2.5), 12, (0, 2.5)),
    "next run without a request is at max": RunsCase((0,), 10, (0, 10)),
    "max counts from the last run": RunsCase((0, 4), 14, (0, 4, 14)),
    "request just before max": RunsCase((0, 9.75), 19.5, (0, 9.75)),
    "max counts from a run just before max": RunsCase((0, 9.75), 19.75, (0, 9.75, 19.75)),
    "request just after max waits until min": RunsCase((0, 10.25), 19, (0, 10, 11)),
    "min counts from the end of a run": RunsCase((0, 2.25), 9, (0, 3), duration=2),
    "pause is as long as the run": RunsCase((0, 0.1), 9, (0, 1), duration=0.5, intervals=SHORT),
    "pause after a long run is one second": RunsCase((0, 0.1), 9, (0, 4), duration=3, intervals=SHORT),
    "no pause if the minimum is zero": RunsCase((0, 0.1), 9, (0, 3), duration=3, intervals=NONE),
    "max counts from the end of a run": RunsCase((0,), 24, (0, 12, 24), duration=2),
}

RETRIES = {
    "failed run is retried after retry": RunsCase((0,), 14, (0, 5), failing=(0,)),
    "no retry before retry": RunsCase((0,), 4.999, (0,), failing=(0,)),
    "max counts from a successful retry": RunsCase((0,), 15, (0, 5, 15), failing=(0,)),
    "each failed run is retried": RunsCase((0,), 25, (0, 5, 10, 15, 25), failing=(0, 1, 2)),
    "request before retry runs at once": RunsCase((0, 3), 3, (0, 3), failing=(0,)),
    "successful run cancels the retry": RunsCase((0, 3), 13, (0, 3, 13), failing=(0,)),
    "request before min runs at min after a failure": RunsCase((0, 0.5), 11, (0, 1, 11), failing=(0,)),
    "another failure postpones the retry": RunsCase((0, 3), 8, (0, 3, 8), failing=(0, 1)),
    "retry counts from the end of a run": RunsCase((0,), 7, (0, 7), failing=(0,), duration=2),
    "retry shorter than min runs at min": RunsCase((0,), 2, (0, 2), failing=(0,), intervals=RETRY_SHORTER),
    "retry shorter than min does not run before min": RunsCase(
        (0,), 1.999, (0,), failing=(0,), intervals=RETRY_SHORTER
    ),
    "repeated retries shorter than min": RunsCase((0,), 15, (0, 2, 4, 14), failing=(0, 1), intervals=RETRY_SHORTER),
    "retry longer than max runs at max": RunsCase((0,), 10, (0, 10), failing=(0,), intervals=RETRY_LONGER),
    "failed run at max is retried after retry": RunsCase((), 15, (10, 15), failing=(0,)),
}


def _starts(case: RunsCase) -> tuple[float, ...]:
    runner_thread = RunnerThread(case.intervals, failing=case.failing, duration=case.duration)
    runner_thread.start()
    runner_thread.request_at(*case.requests)
    runner_thread.clock.advance_to(case.until)
    runner_thread.stop()
    return tuple(runner_thread.starts)


@parametrize_cases(SCHEDULES)
def test_runs_respect_minimum_and_maximum_intervals(case: RunsCase) -> None:
    assert case.starts == _starts(case)


@parametrize_cases(RETRIES)
def test_failed_run_is_retried(case: RunsCase) -> None:
    assert case.starts == _starts(case)


@pytest.mark.parametrize("requests", [1, 3], ids=["one", "three"])
def test_requests_during_a_run_cause_one_more_run(requests: int) -> None:
    def during(number: int) -> None:
        for _ in range(requests if number == 0 else 0):
            runner_thread.runner.request()

    runner_thread = RunnerThread(DEFAULT, duration=2, during=during)
    runner_thread.start()
    runner_thread.request_at(0)
    runner_thread.clock.advance_to(14.999)
    runner_thread.stop()
    assert runner_thread.starts == [0, 3]


def test_request_during_failing_run_precedes_retry() -> None:
    runner_thread = RunnerThread(
        DEFAULT, failing=(0,), during=lambda number: runner_thread.runner.request() if number == 0 else None
    )
    runner_thread.start()
    runner_thread.request_at(0)
    runner_thread.clock.advance_to(10.999)
    runner_thread.stop()
    assert runner_thread.starts == [0, 1]


@pytest.mark.parametrize(("jitter", "second"), [(0.0, 5), (0.5, 5.5), (1.0, 6)])
def test_jitter_delays_a_retry_by_up_to_a_fifth(jitter: float, second: float) -> None:
    """Nodes that fail together do not retry together. The next regular run has no jitter."""
    runner_thread = RunnerThread(DEFAULT, failing=(0,), jitter=lambda: jitter)
    runner_thread.start()
    runner_thread.request_at(0)
    runner_thread.clock.advance_to(second + 10)
    runner_thread.stop()
    assert runner_thread.starts == [0, second, second + 10]


@pytest.mark.parametrize(("within", "starts"), [(3, [0, 3, 13]), (0.5, [0, 1, 11]), (30, [0, 10, 20])])
def test_run_can_request_the_next_one_within_a_time(within: float, starts: list[float]) -> None:
    """The next run starts between the minimum and the maximum interval; a request applies to one run."""
    runner_thread = RunnerThread(
        DEFAULT, during=lambda number: runner_thread.runner.request_within(within) if number == 0 else None
    )
    runner_thread.start()
    runner_thread.request_at(0)
    runner_thread.clock.advance_to(starts[-1])
    runner_thread.stop()
    assert starts == runner_thread.starts


class StopCase(NamedTuple):
    """Times of the requests and of the stop, and the start times of the runs."""

    requests: tuple[float, ...]
    stop_at: float
    starts: tuple[float, ...]


STOPS = {
    "no run yet": StopCase((), 0, ()),
    "waiting for max": StopCase((0,), 5, (0,)),
    "waiting for min": StopCase((0,), 0.5, (0,)),
    "waiting for min with a request": StopCase((0, 0.25), 0.5, (0,)),
}


@parametrize_cases(STOPS)
def test_stop_ends_the_loop_without_another_run(case: StopCase) -> None:
    runner_thread = RunnerThread(DEFAULT)
    runner_thread.start()
    runner_thread.request_at(*case.requests)
    runner_thread.clock.advance_to(case.stop_at)
    runner_thread.stop()
    runner_thread.runner.request()
    assert case.starts == tuple(runner_thread.starts)


def test_stop_during_a_run_lets_it_finish() -> None:
    runner_thread = RunnerThread(DEFAULT, duration=2, during=lambda _: runner_thread.runner.stop())
    runner_thread.start()
    runner_thread.request_at(0)
    assert runner_thread.clock.settle()
    assert runner_thread.starts == [0]


def test_stop_before_the_loop_prevents_all_runs() -> None:
    runner_thread = RunnerThread(DEFAULT)
    runner_thread.runner.request()
    runner_thread.runner.stop()
    runner_thread.start()
    assert runner_thread.starts == []


class _EventSetAfterFirstCheck(threading.Event):
    """A stop event that is set right after its first ``is_set`` call has returned False."""

    def __init__(self, runner: BoundedFrequencyRunner) -> None:
        """Stop ``runner`` after the first check."""
        super().__init__()
        self._runner: BoundedFrequencyRunner | None = runner

    def is_set(self) -> bool:
        """Return the state from before this call sets the event."""
        before = super().is_set()
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.stop()
        return before


def test_stop_between_any_two_statements_of_the_loop_is_noticed() -> None:
    """Otherwise the process would exit only after the maximum interval, which may be an hour."""
    runner_thread = RunnerThread(DEFAULT)
    runner_thread.runner._stop = _EventSetAfterFirstCheck(runner_thread.runner)
    runner_thread.start()
    runner_thread.request_at(0)
    assert runner_thread.clock.settle(), "the loop continues after stop()"


@pytest.mark.parametrize("minimum", [0, 1, 10])
def test_maximum_less_than_minimum_is_refused(minimum: float) -> None:
    assert Intervals(minimum, 5, 10).minimum == minimum
    with pytest.raises(ValueError, match=r"maximum interval 10 s is less than the minimum 11 s"):
        Intervals(11, 5, 10)


class MonotonicCase(NamedTuple):
    """The results of successive runs, and how many of the runs the test requests."""

    intervals: Intervals
    results: tuple[bool, ...]
    requests: int


MONOTONIC = {
    "one request": MonotonicCase(Intervals(0.0, 60.0, 60.0), (True,), 1),
    "three requests": MonotonicCase(Intervals(0.001, 60.0, 60.0), (True, True, True), 3),
    "three runs at max without requests": MonotonicCase(Intervals(0.001, 60.0, 0.002), (True, True, True), 0),
    "two retries": MonotonicCase(Intervals(0.001, 0.002, 60.0), (False, False, True), 1),
    "two retries at min": MonotonicCase(Intervals(0.002, 0.0, 60.0), (False, False, True), 1),
}


@parametrize_cases(MONOTONIC)
def test_runs_follow_each_other_on_the_monotonic_clock(case: MonotonicCase) -> None:
    """Checks only the order and number of runs, since timing depends on the machine."""
    events: list[str] = []
    results = iter(case.results)

    def run() -> bool:
        number = sum(entry.startswith("begin") for entry in events)
        events.append(f"begin {number}")
        if number + 1 < case.requests:
            runner.request()
        if number + 1 == len(case.results):
            runner.stop()
        events.append(f"end {number}")
        return next(results)

    runner = BoundedFrequencyRunner(run, case.intervals, MonotonicClock())
    if case.requests:
        runner.request()
    thread = threading.Thread(target=runner.loop, daemon=True)
    thread.start()
    thread.join(THREAD_TIMEOUT)
    assert not thread.is_alive()
    assert [f"{event} {number}" for number in range(len(case.results)) for event in ("begin", "end")] == events


class _RecordingEvent(threading.Event):
    """An event that records the timeout of ``wait`` and returns at once."""

    timeout: float | None = None

    def wait(self, timeout: float | None = None) -> bool:
        """Record the timeout."""
        self.timeout = timeout
        return self.is_set()


def test_monotonic_clock_waits_until_the_time_is_reached() -> None:
    clock, event = MonotonicClock(), _RecordingEvent()
    clock.wait(event, clock.now() + 3600)
    assert event.timeout is not None
    assert 0 < event.timeout <= 3600
    clock.wait(event, clock.now() - 3600)
    assert event.timeout == 0


def test_monotonic_clock_returns_whether_the_event_is_set() -> None:
    clock, event = MonotonicClock(), threading.Event()
    assert not clock.wait(event, clock.now() - 1)
    event.set()
    assert clock.wait(event, clock.now() - 1)
    assert clock.wait(event, clock.now() + 3600)


def test_monotonic_clock_never_decreases() -> None:
    clock = MonotonicClock()
    times = [clock.now() for _ in range(100)]
    assert sorted(times) == times


BURST = Intervals(minimum=2, retry=5, maximum=20, burst=3)


@parametrize_cases(
    {
        "burst after the start": RunsCase((0, 0.5, 1), 3, (0, 0.5, 1), intervals=BURST),
        "runs after the burst are delayed": RunsCase((0, 0.5, 1, 1.5, 2.5), 8, (0, 0.5, 1, 2, 4), intervals=BURST),
        "burst after a long pause": RunsCase(
            (0, 0, 0, 10, 10, 10, 10), 12.5, (0, 0, 0, 10, 10, 10, 12), intervals=BURST
        ),
        "two runs after a short pause": RunsCase((0, 0, 0, 4, 4, 4), 6, (0, 0, 0, 4, 4, 6), intervals=BURST),
        "longest interval": RunsCase((0,), 40, (0, 20, 40), intervals=BURST),
    }
)
def test_burst_of_runs_without_a_pause(case: RunsCase) -> None:
    assert case.starts == pytest.approx(_starts(case))


@given(
    st.integers(1, 4),
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 5)), min_size=1, max_size=30),
)
def test_any_number_of_consecutive_runs_has_the_pauses_of_the_minimum(burst: int, steps: list[tuple[int, int]]) -> None:
    """N runs beyond a burst need N minimum intervals in which nothing runs, whatever their durations and the burst."""
    minimum = 3.0
    budget = RunBudget(Intervals(minimum, 5, 60, burst))
    now, pause, idle_before = 0.0, 0.0, [0.0]
    for waited, duration in steps:
        idle = max(pause, float(waited))
        idle_before.append(idle_before[-1] + idle)
        started, now = now + idle, now + idle + duration
        pause = budget.pause_after(started, now)
    for first in range(1, len(idle_before)):
        for last in range(first + burst, len(idle_before)):
            assert idle_before[last] - idle_before[first] >= (last - first - burst + 1) * minimum - 1e-6


def test_burst_without_a_run_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one run, not 0"):
        Intervals(1, 5, 10, burst=0)
