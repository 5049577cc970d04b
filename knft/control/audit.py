"""Requests an audit of the running knft, and waits until it has ended."""

import time
from collections.abc import Callable

from knft.control.client import ask, decode
from knft.control.messages import AUDIT_PATH, AUDITS_PATH, Audits
from knft.errors import ControlError

WAIT_SECONDS = 300.0
POLL_SECONDS = 0.2


def audit_now(
    ask: Callable[[str], bytes] = ask,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Return after an audit that began after the request; raise ControlError if it does not end."""
    deadline = now() + WAIT_SECONDS
    audits = decode(ask(AUDIT_PATH), Audits)
    requested = audits.requested or 0
    while audits.ended < requested:
        if now() >= deadline:
            msg = f"the audit has not ended within {WAIT_SECONDS:.0f} s; 'knft status' prints its result later"
            raise ControlError(msg)
        sleep(POLL_SECONDS)
        audits = decode(ask(AUDITS_PATH), Audits)
