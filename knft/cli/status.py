"""``knft status``: asks the running knft how it is, and prints the answer."""

import time
from collections.abc import Callable

import click
import msgspec
from msgspec import structs

from knft.app.leftover_warnings import leftover_warnings
from knft.cli.status_text import AuditConclusion, Leftovers, audit_conclusion, format_status, format_summary
from knft.cli.terminal import terminal_width, use_colours
from knft.control.audit import audit_now
from knft.control.client import ask, decode
from knft.control.messages import STATUS_PATH, Status

STATUS_EQUAL, STATUS_DIFFERENT = 0, 3
MAX_AUDITS = 3
"""How often an audit is requested that syncs prevent."""


class StatusDocument(Status, frozen=True, kw_only=True):
    """The running knft's status, and what kube-proxy left on this machine: the JSON output of ``knft status``."""

    leftovers: Leftovers


def status(output: str, *, audit: bool) -> int:
    """Print the status as "text", "summary" or "json", and return the exit status.

    With ``audit``, let the daemon audit its tables before. Raises ControlError if no daemon answers.
    """
    answer, audited = audited_status() if audit else (ask(STATUS_PATH), None)
    leftovers = read_leftovers()
    found = decode(answer, Status)
    if output == "json":
        document = StatusDocument(**structs.asdict(found), leftovers=leftovers)
        text = f"{msgspec.json.format(msgspec.json.encode(document), indent=2).decode()}\n"
    elif output == "summary":
        text = format_summary(found, leftovers)
    else:
        colours = use_colours()
        text = format_status(found, terminal_width(), leftovers=leftovers, audit=audited, colours=colours)
    click.echo(text, nl=False)
    return STATUS_EQUAL if audited is None or audited.is_equal else STATUS_DIFFERENT


def read_leftovers() -> Leftovers:
    """Return what kube-proxy left on this machine. The running knft lacks the capability to read iptables-legacy."""
    errors: dict[str, None] = {}
    found = tuple(leftover_warnings(lambda error: errors.setdefault(str(error))))
    return Leftovers(found, tuple(errors))


def audited_status(
    ask: Callable[[str], bytes] = ask, audit: Callable[[], None] = audit_now, now: Callable[[], float] = time.monotonic
) -> tuple[bytes, AuditConclusion]:
    """Let the daemon audit its tables; return its status after that, and what the audit found.

    An audit that did not compare a table, because a sync was running, is repeated, unless another table differed: the
    daemon repairs that, so the next audit would not find it.
    """
    answer = ask(STATUS_PATH)
    asked = now()
    for _ in range(MAX_AUDITS):
        if not _can_audit(decode(answer, Status)):
            break
        asked = now()
        audit()
        answer = ask(STATUS_PATH)
        if not _was_prevented(decode(answer, Status)):
            break
    return answer, audit_conclusion(decode(answer, Status), now() - asked)


def _can_audit(status: Status) -> bool:
    """Return whether the daemon audits: it does not before it begins to sync."""
    return all(family.state != "waiting" for family in status.families.values())


def _was_prevented(status: Status) -> bool:
    audits = [each.audit for each in status.families.values() if each.audit is not None and each.state != "left"]
    return any(audit.error for audit in audits) and not any(audit.differences for audit in audits)
