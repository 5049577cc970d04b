"""The BoundedFrequencyRunner on a fake clock, and once on the monotonic clock (docs/behaviour/node.md#runner)."""

import threading
from typing import NamedTuple

import pytest

from knft.runner.bounded import BoundedFrequencyRunner, Intervals
from knft.runner.clock import MonotonicClock
from tests.runner.fake_clock import HUNG, RunnerThread
from tests.support.kube_objects import parametrize_rows

USUAL = Intervals(minimum=1, retry=5, maximum=10)
RETRY_SHORTER = Intervals(minimum=2, retry=1, maximum=10)
RETRY_LONGER = Intervals(minimum=1, retry=50, maximum=10)


class Row(NamedTuple):
    """Times of requests, and when the runs begin until ``until``; the runs numbered in ``failing`` fail."""

    requests: tuple[float, ...]
    until: float
    starts: tuple[float, ...]
    failing: tuple[int, ...] = ()
    duration: float = 0
    intervals: Intervals = USUAL


MAIN = {
    "the first request is honoured at once": Row((0,), 9, (0,)),
    "also when it comes late": Row((3,), 12, (3,)),
    "without a request nothing runs before max": Row((), 9.999, ()),
    "without a request it runs at max": Row((), 10, (10,)),
    "and again and again": Row((), 30, (10, 20, 30)),
    "a request in the cool-down waits": Row((0, 0.25), 0.999, (0,)),
    "until exactly min after the run": Row((0, 0.25), 9, (0, 1)),
    "several requests in the cool-down are one": Row((0, 0.25, 0.5, 0.75), 9, (0, 1)),
    "several requests in each cool-down are one in each": Row((0, 0.25, 0.5, 1.25, 1.5), 9, (0, 1, 2)),
    "a request when the cool-down ends": Row((0, 1), 9, (0, 1)),
    "a request after the cool-down is honoured at once": Row((0, 2.5), 12, (0, 2.5)),
    "idle after a run until max": Row((0,), 10, (0, 10)),
    "max counts from the last run": Row((0, 4), 14, (0, 4, 14)),
    "a request just before max": Row((0, 9.75), 19.5, (0, 9.75)),
    "and max counts from there": Row((0, 9.75), 19.75, (0, 9.75, 19.75)),
    "a request just after max waits": Row((0, 10.25), 19, (0, 10, 11)),
    "the cool-down counts from a run's end": Row((0, 2.25), 9, (0, 3), duration=2),
    "max counts from a run's end": Row((0,), 24, (0, 12, 24), duration=2),
}

RETRIES = {
    "a failed run is tried again after retry": Row((0,), 14, (0, 5), failing=(0,)),
    "not before": Row((0,), 4.999, (0,), failing=(0,)),
    "after success max counts again": Row((0,), 15, (0, 5, 15), failing=(0,)),
    "failures go on being tried again": Row((0,), 25, (0, 5, 10, 15, 25), failing=(0, 1, 2)),
    "a request before retry is honoured": Row((0, 3), 3, (0, 3), failing=(0,)),
    "and its success cancels the retry": Row((0, 3), 13, (0, 3, 13), failing=(0,)),
    "a request in the cool-down is honoured after min": Row((0, 0.5), 11, (0, 1, 11), failing=(0,)),
    "its failure puts the retry off": Row((0, 3), 8, (0, 3, 8), failing=(0, 1)),
    "retry counts from a run's end": Row((0,), 7, (0, 7), failing=(0,), duration=2),
    "retry shorter than min comes at min": Row((0,), 2, (0, 2), failing=(0,), intervals=RETRY_SHORTER),
    "not before min": Row((0,), 1.999, (0,), failing=(0,), intervals=RETRY_SHORTER),
    "also repeatedly": Row((0,), 15, (0, 2, 4, 14), failing=(0, 1), intervals=RETRY_SHORTER),
    "retry longer than max comes at max": Row((0,), 10, (0, 10), failing=(0,), intervals=RETRY_LONGER),
    "a failure at max is tried again after retry": Row((), 15, (10, 15), failing=(0,)),
}


def _starts(row: Row) -> tuple[float, ...]:
    held = RunnerThread(row.intervals, failing=row.failing, duration=row.duration)
    held.start()
    held.request_at(*row.requests)
    held.clock.advance_to(row.until)
    held.stop()
    return tuple(held.starts)


@parametrize_rows(MAIN)
def test_runs_respect_minimum_and_maximum_intervals(row: Row) -> None:
    assert row.starts == _starts(row)


@parametrize_rows(RETRIES)
def test_failed_run_is_retried(row: Row) -> None:
    assert row.starts == _starts(row)


@pytest.mark.parametrize("requests", [1, 3], ids=["one", "three"])
def test_requests_during_a_run_cause_one_more_run(requests: int) -> None:
    def during(number: int) -> None:
        for _ in range(requests if number == 0 else 0):
            held.runner.request()

    held = RunnerThread(USUAL, duration=2, during=during)
    held.start()
    held.request_at(0)
    held.clock.advance_to(14.999)
    held.stop()
    assert held.starts == [0, 3]


def test_request_during_failing_run_precedes_retry() -> None:
    held = RunnerThread(USUAL, failing=(0,), during=lambda number: held.runner.request() if number == 0 else None)
    held.start()
    held.request_at(0)
    held.clock.advance_to(10.999)
    held.stop()
    assert held.starts == [0, 1]


@pytest.mark.parametrize(("jitter", "second"), [(0.0, 5), (0.5, 5.5), (1.0, 6)])
def test_jitter_delays_a_retry_by_up_to_a_fifth(jitter: float, second: float) -> None:
    """Nodes that fail together do not try again together; a success is not put off."""
    held = RunnerThread(USUAL, failing=(0,), jitter=lambda: jitter)
    held.start()
    held.request_at(0)
    held.clock.advance_to(second + 10)
    held.stop()
    assert held.starts == [0, second, second + 10]


@pytest.mark.parametrize(("within", "starts"), [(3, [0, 3, 13]), (0.5, [0, 1, 11]), (30, [0, 10, 20])])
def test_run_can_request_the_next_one_within_a_time(within: float, starts: list[float]) -> None:
    """Not before the minimum, and never later than without asking; it counts once."""
    held = RunnerThread(USUAL, during=lambda number: held.runner.request_within(within) if number == 0 else None)
    held.start()
    held.request_at(0)
    held.clock.advance_to(starts[-1])
    held.stop()
    assert starts == held.starts


class Stop(NamedTuple):
    """When requests come and when the loop is stopped, and which runs there were."""

    requests: tuple[float, ...]
    at: float
    starts: tuple[float, ...]


STOPS = {
    "idle from the start": Stop((), 0, ()),
    "idle after a run": Stop((0,), 5, (0,)),
    "in the cool-down": Stop((0,), 0.5, (0,)),
    "in the cool-down, a request is dropped": Stop((0, 0.25), 0.5, (0,)),
}


@parametrize_rows(STOPS)
def test_stop_ends_the_loop_without_another_run(row: Stop) -> None:
    held = RunnerThread(USUAL)
    held.start()
    held.request_at(*row.requests)
    held.clock.advance_to(row.at)
    held.stop()
    held.runner.request()
    assert row.starts == tuple(held.starts)


def test_stop_during_a_run_lets_it_finish() -> None:
    held = RunnerThread(USUAL, duration=2, during=lambda _: held.runner.stop())
    held.start()
    held.request_at(0)
    assert held.clock.settle()
    assert held.starts == [0]


def test_stop_before_the_loop_prevents_all_runs() -> None:
    held = RunnerThread(USUAL)
    held.runner.request()
    held.runner.stop()
    held.start()
    assert held.starts == []


class _StopsBehindTheBack(threading.Event):
    """A stop flag that is set right after somebody has looked at it for the first time, and has seen that it is not."""

    def __init__(self, runner: BoundedFrequencyRunner) -> None:
        """Stop ``runner`` once."""
        super().__init__()
        self._runner: BoundedFrequencyRunner | None = runner

    def is_set(self) -> bool:
        """Answer as of before."""
        before = super().is_set()
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.stop()
        return before


def test_stop_between_any_two_statements_of_the_loop_is_noticed() -> None:
    """Otherwise the process ends as late as the longest pause, which may be an hour."""
    held = RunnerThread(USUAL)
    held.runner._stop = _StopsBehindTheBack(held.runner)
    held.start()
    held.request_at(0)
    assert held.clock.settle(), "the loop goes on after stop()"


@pytest.mark.parametrize("minimum", [0, 1, 10])
def test_maximum_less_than_minimum_is_refused(minimum: float) -> None:
    assert Intervals(minimum, 5, 10).minimum == minimum
    with pytest.raises(ValueError, match=r"maximum interval 10 s is less than the minimum 11 s"):
        Intervals(11, 5, 10)


class Real(NamedTuple):
    """How the runs end, one after another, and how many of them the test asks for itself."""

    intervals: Intervals
    answers: tuple[bool, ...]
    requests: int


REAL = {
    "asked for": Real(Intervals(0.0, 60.0, 60.0), (True,), 1),
    "asked for again and again, in spite of a pause": Real(Intervals(0.001, 60.0, 60.0), (True, True, True), 3),
    "by itself at max": Real(Intervals(0.001, 60.0, 0.002), (True, True, True), 0),
    "tried again": Real(Intervals(0.001, 0.002, 60.0), (False, False, True), 1),
    "tried again at min": Real(Intervals(0.002, 0.0, 60.0), (False, False, True), 1),
}


@parametrize_rows(REAL)
def test_runs_follow_each_other_on_the_monotonic_clock(row: Real) -> None:
    """Order and number only: how long anything takes is the machine's affair."""
    happened: list[str] = []
    answers = iter(row.answers)

    def run() -> bool:
        number = sum(entry.startswith("begin") for entry in happened)
        happened.append(f"begin {number}")
        if number + 1 < row.requests:
            runner.request()
        if number + 1 == len(row.answers):
            runner.stop()
        happened.append(f"end {number}")
        return next(answers)

    runner = BoundedFrequencyRunner(run, row.intervals, MonotonicClock())
    if row.requests:
        runner.request()
    thread = threading.Thread(target=runner.loop, daemon=True)
    thread.start()
    thread.join(HUNG)
    assert not thread.is_alive()
    assert [f"{word} {number}" for number in range(len(row.answers)) for word in ("begin", "end")] == happened


class _Patient(threading.Event):
    """An event that notes how long it is waited for, and is never waited for."""

    timeout: float | None = None

    def wait(self, timeout: float | None = None) -> bool:
        """Note the time."""
        self.timeout = timeout
        return self.is_set()


def test_monotonic_clock_waits_until_the_time_is_reached() -> None:
    clock, event = MonotonicClock(), _Patient()
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
