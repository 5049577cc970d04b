"""Lines of knft's log in klog's text format: their severity and message."""

import re
from typing import NamedTuple

HEADER = r"(?P<severity>[IWEF])\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ [^ :]+:\d+\] "
_LINE = re.compile(HEADER + r"(?P<message>.*)")


class LogLine(NamedTuple):
    severity: str
    message: str


def log_lines(log: str) -> list[LogLine]:
    """Return the log lines in a text; lines of other forms, such as those of a traceback, are left out."""
    return [LogLine(*found.group("severity", "message")) for line in log.splitlines() if (found := _LINE.search(line))]


def messages(log: str, severity: str) -> list[str]:
    """Return the messages of the lines with a severity: I, W, E or F."""
    return [line.message for line in log_lines(log) if line.severity == severity]
