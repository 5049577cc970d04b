"""``knft status --audit`` asks a real ``knft run`` to compare its tables now."""

import json
from pathlib import Path

import pytest

from knft.control.audit import WAIT_SECONDS, audit_now
from knft.control.client import ask, decode
from knft.control.messages import AUDIT_PATH, AUDITS_PATH, Audits
from knft.errors import ControlError
from tests.control.daemon import UNNOTICED_CHANGES, ControlledKnft
from tests.support.knft_command import knft

CONCLUSIONS = (
    (
        "audit: IPv4: 1 difference in services; knft repairs the table",
        "knft is ready; IPv4: an audit found differences, and knft has not repaired the table yet",
    ),
    (
        "audit: IPv4: 1 difference in services; knft has repaired the table",
        "knft is ready and all rules are in force",
    ),
)
"""The first lines before and after the sync that repairs the table."""


@pytest.mark.kernel
def test_audit_of_right_tables_exits_with_0(daemon: ControlledKnft) -> None:
    assert daemon.ask("status")["families"]["IPv4"]["audit"] is None
    done = knft(daemon.namespace, "status", "--audit")
    assert done.stdout.splitlines()[0] == "audit: no differences"
    found = [family["audit"] for family in daemon.ask("status")["families"].values()]
    assert [(each["differences"], each["error"]) for each in found] == [(0, "")] * 2
    with daemon.namespace.entered():
        assert decode(ask(AUDITS_PATH), Audits).requested is None


@pytest.mark.kernel
def test_audit_finds_a_change_that_knft_has_overlooked(tmp_path: Path) -> None:
    """The exit status is 3, the answer names the chain, and knft repairs it."""
    daemon = ControlledKnft(tmp_path, patch=UNNOTICED_CHANGES)
    try:
        daemon.wait_until_synced()
        daemon.namespace.run(["nft", "flush", "chain", "ip", "knft", "services"])
        done = knft(daemon.namespace, "status", "--audit", "-o", "json", check=False)
        assert done.returncode == 3, done.stderr
        audit = json.loads(done.stdout)["families"]["IPv4"]["audit"]
        assert (audit["differences"], audit["names"]) == (1, ["services"])
        assert knft(daemon.namespace, "status", "--audit").stdout.splitlines()[0] == "audit: no differences"

        daemon.namespace.run(["nft", "flush", "chain", "ip", "knft", "services"])
        found, conclusion, *_ = knft(daemon.namespace, "status", "--audit", check=False).stdout.splitlines()
        assert (found, conclusion) in CONCLUSIONS
        daemon.wait_until(lambda: knft(daemon.namespace, "status").stdout.startswith(f"{CONCLUSIONS[1][1]}\n"))
    finally:
        daemon.close()


def test_audit_that_does_not_end_is_an_error() -> None:
    asked: list[str] = []

    def ask(path: str) -> bytes:
        asked.append(path)
        return b'{"ended": 4, "requested": 5}' if path == AUDIT_PATH else b'{"ended": 4}'

    seconds = iter([0.0, 0.0, 1.0, WAIT_SECONDS])
    with pytest.raises(ControlError, match="the audit has not ended within 300 s; 'knft status' prints its result"):
        audit_now(ask, lambda: next(seconds), lambda _: None)
    assert asked == [AUDIT_PATH, AUDITS_PATH, AUDITS_PATH]
