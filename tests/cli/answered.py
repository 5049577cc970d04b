"""knft commands that need the running knft or this machine, with the answers of their text tests.

``python -m tests.cli.answered status``
"""

from contextlib import ExitStack
from unittest.mock import patch

import msgspec

from knft.cli.commands import cli
from knft.control.messages import COUNTERS_PATH, HISTORY_PATH, STATUS_PATH, Counters, History, Status
from tests.cli.example_status import AWAY, HISTORY, LEFTOVERS
from tests.cli.test_top import BEFORE, LONG_NAMES
from tests.support.node_facts import with_findings

_ANSWERS: dict[str, list[Status | History | Counters]] = {
    STATUS_PATH: [AWAY],
    HISTORY_PATH: [HISTORY],
    COUNTERS_PATH: [BEFORE, LONG_NAMES],
}


def _answer(path: str) -> bytes:
    return msgspec.json.encode(_ANSWERS[path].pop(0))


if __name__ == "__main__":
    with ExitStack() as patches:
        for command in ("status", "history", "top"):
            patches.enter_context(patch(f"knft.cli.{command}.ask", _answer))
        patches.enter_context(patch("knft.cli.status.read_leftovers", lambda: LEFTOVERS))
        patches.enter_context(patch("knft.cli.top._sleep", lambda _: False))
        patches.enter_context(patch("knft.cli.preflight.read_facts", lambda _: with_findings()))
        cli()
