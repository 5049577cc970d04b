"""The log has a limited number of warnings of one kind per minute, then a summary (docs/operations/index.md#logs)."""

import math
import subprocess
import sys

from knft.cli.line_limit import INTERVAL_SECONDS, MAX_LINES, LineLimit
from tests.support.log_lines import messages

CODE = f"""
import logging
from knft.cli.logs import set_up_logging
from knft.configuration.settings import LoggingSettings

writer = set_up_logging(LoggingSettings())
if {{threaded}}:
    writer.start()
log = logging.getLogger("knft")
for number in range({MAX_LINES} + 900):
    log.warning("object %d is invalid", number)
    log.info("step %d", number)
log.warning("another kind")
"""


def test_lines_of_one_kind_are_limited_in_each_interval() -> None:
    limit = LineLimit()
    numbers = [limit.count("a", f"line {number}", 10.0) for number in range(MAX_LINES + 5)]
    assert numbers == list(range(1, MAX_LINES + 6))
    assert limit.count("b", "other", 11.0) == 1
    end = 10.0 + INTERVAL_SECONDS
    assert limit.next_summary(20.0) == end - 20.0
    assert limit.take_summaries(end - 0.1) == []
    # The summary comes before further lines.
    assert limit.count("a", "late", end + 1) == MAX_LINES + 6
    assert limit.take_summaries(end + 2) == ["did not log 6 more warnings of one kind in 60 s; the last one: late"]
    assert (limit.next_summary(end + 2), limit.take_summaries(math.inf)) == (None, [])
    assert limit.count("a", "new", end + 3) == 1


def test_interval_begins_again_without_a_summary() -> None:
    limit = LineLimit()
    for now in (0.0, INTERVAL_SECONDS):
        assert [limit.count("a", "", now) for _ in range(MAX_LINES)] == list(range(1, MAX_LINES + 1))
    assert limit.take_summaries(math.inf) == []


def test_mistake_in_many_objects_does_not_fill_the_log() -> None:
    """The summary is written at the end of the process, with and without the thread of the log."""
    for threaded in (False, True):
        code = CODE.replace("{threaded}", str(threaded))
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        lines = messages(done.stderr, "W")
        assert lines[:MAX_LINES] == [f"object {number} is invalid" for number in range(MAX_LINES)]
        last = f"the last one: object {MAX_LINES + 899} is invalid"
        summary = f"did not log 900 more warnings of one kind in 60 s; {last}"
        assert lines[MAX_LINES:] == ["another kind", summary]
        assert len(messages(done.stderr, "I")) == MAX_LINES + 900
