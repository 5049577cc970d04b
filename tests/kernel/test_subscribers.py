"""ForeignChangeMonitor.other_subscribers: which other sockets receive nf_tables notifications."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from knft.errors import KernelError
from knft.kernel import notifications
from knft.kernel.notifications import ForeignChangeMonitor
from tests.support.lab.namespace import Namespace

pytestmark = pytest.mark.kernel


@pytest.fixture
def monitor(namespace: Namespace) -> Iterator[ForeignChangeMonitor]:
    with namespace.entered(), ForeignChangeMonitor("knft") as opened:
        yield opened


def test_other_subscribers_are_the_sockets_of_other_monitors(monitor: ForeignChangeMonitor) -> None:
    """Of this network namespace only, with the identities that /proc shows."""
    assert monitor.other_subscribers() == frozenset()
    other = Namespace.create("other")
    with other.entered(), ForeignChangeMonitor("knft") as elsewhere:
        assert elsewhere.other_subscribers() == frozenset()
    other.close()
    with ForeignChangeMonitor("knft") as second, ForeignChangeMonitor("knft") as third:
        inodes = {os.fstat(each._socket.fileno()).st_ino for each in (second, third)}
        assert monitor.other_subscribers() == inodes
        assert len(inodes) == 2
        monitor.reopen()
        assert monitor.other_subscribers() == inodes
        second.close()
        assert len(monitor.other_subscribers()) == 1
    assert monitor.other_subscribers() == frozenset()


@pytest.mark.parametrize("content", [None, "", "sk Eth\n12 12 x\n"])
def test_unreadable_list_of_sockets_is_an_error(
    monitor: ForeignChangeMonitor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: str | None
) -> None:
    if content is not None:
        (tmp_path / "netlink").write_text(content)
    monkeypatch.setattr(notifications, "_NETLINK_SOCKETS", tmp_path / "netlink")
    with pytest.raises(KernelError, match=r"cannot read .*netlink: "):
        monitor.other_subscribers()
