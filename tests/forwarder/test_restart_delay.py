"""How long the forwarder waits before its process is started again."""

from knft.forwarder.restart_delay import RestartDelay


def test_delay_grows_to_a_minute() -> None:
    delay = RestartDelay()
    assert [delay.after(0.1) for _ in range(9)] == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_delay_begins_again_after_a_process_that_has_run_for_long() -> None:
    delay = RestartDelay()
    assert [delay.after(seconds) for seconds in (1, 1, 1, 61, 1)] == [1, 2, 4, 1, 2]
