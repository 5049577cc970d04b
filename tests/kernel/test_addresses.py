"""AddressMonitor: reports each change of the interface addresses, and nothing else."""

import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from knft.errors import KernelError
from knft.kernel import addresses, netlink_dump
from knft.kernel.addresses import AddressMonitor, local_addresses
from tests.support.lab.links import netlink
from tests.support.lab.namespace import Namespace
from tests.support.lab.plan import LAN, Addresses
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kernel
TIMEOUT = 30.0
FIRST, SECOND = LAN.at(11), LAN.at(12)
LOOPBACK = frozenset({"127.0.0.1", "::1"})


def _both(item: Addresses) -> frozenset[str]:
    return frozenset({item.ipv4, item.ipv6})


class MonitorThread:
    """An AddressMonitor in a thread, in a namespace whose loopback interface is up."""

    def __init__(self, namespace: Namespace) -> None:
        self.namespace = namespace
        self.reports: list[frozenset[str]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="addresses")

    def _run(self) -> None:
        with self.namespace.entered():
            AddressMonitor().run(self._stop, self.reports.append)

    def start(self) -> None:
        self._thread.start()
        self.until(lambda: bool(self.reports))

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(TIMEOUT)
        assert not self._thread.is_alive()

    def until(self, condition: Callable[[], bool]) -> None:
        wait_until(condition, lambda: self.reports)

    def wait_for(self, expected: frozenset[str]) -> None:
        self.until(lambda: self.reports[-1] == expected)


@pytest.fixture
def monitor(namespace: Namespace) -> Iterator[MonitorThread]:
    with netlink(namespace) as link:
        link.up("lo")
    found = MonitorThread(namespace)
    yield found
    found.stop()


@pytest.fixture
def without_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the polling interval longer than the test."""
    monkeypatch.setattr(addresses, "POLL_SECONDS", 10 * TIMEOUT)


@pytest.mark.usefixtures("without_polling")
def test_added_and_removed_addresses_are_reported(monitor: MonitorThread) -> None:
    monitor.start()
    assert monitor.reports == [LOOPBACK]
    with netlink(monitor.namespace) as link:
        link.add_loopback_addresses(FIRST)
        monitor.wait_for(LOOPBACK | _both(FIRST))
        link.add_loopback_addresses(SECOND)
        monitor.wait_for(LOOPBACK | _both(FIRST) | _both(SECOND))
        link.remove_loopback_addresses(FIRST)
        monitor.wait_for(LOOPBACK | _both(SECOND))
    with monitor.namespace.entered():
        assert monitor.reports[-1] == local_addresses()


def test_address_of_the_host_on_a_link_with_a_peer_is_listed(namespace: Namespace) -> None:
    with netlink(namespace) as link:
        link.up("lo")
        link.add_peer_addresses("lo", FIRST, SECOND)
    with namespace.entered():
        assert local_addresses() == LOOPBACK | _both(FIRST)


def test_addresses_of_another_family_are_skipped(namespace: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel without IPv6 answers the request for its addresses with those of all families."""
    with netlink(namespace) as link:
        link.up("lo")
    of_ipv4 = addresses._IFADDRMSG.pack(socket.AF_INET, 0, 0, 0, 0)
    with namespace.entered():
        listed = netlink_dump.dump(socket.NETLINK_ROUTE, addresses._GET_ADDRESS, of_ipv4, addresses._NEW_ADDRESS)
        monkeypatch.setattr(netlink_dump, "dump", lambda *_: listed)
        assert local_addresses() == {"127.0.0.1"}


@pytest.mark.usefixtures("without_polling")
def test_unchanged_addresses_are_not_reported_again(monitor: MonitorThread) -> None:
    monitor.start()
    with netlink(monitor.namespace) as link:
        for _ in range(5):
            link.add_loopback_addresses(FIRST)
            link.remove_loopback_addresses(FIRST)
        link.add_loopback_addresses(SECOND)
    monitor.wait_for(LOOPBACK | _both(SECOND))
    assert all(before != after for before, after in zip(monitor.reports, monitor.reports[1:], strict=False))


@pytest.mark.usefixtures("without_polling")
def test_last_change_is_reported_after_buffer_overrun(
    monitor: MonitorThread, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The kernel drops notifications that do not fit into the buffer; this is not an error."""
    monkeypatch.setattr(addresses, "BUFFER_BYTES", 1)
    is_reading, go_on = threading.Event(), threading.Event()
    read = addresses.local_addresses

    def read_slowly() -> frozenset[str]:
        found = read()
        if monitor.reports:
            is_reading.set()
            assert go_on.wait(TIMEOUT)
        return found

    monkeypatch.setattr(addresses, "local_addresses", read_slowly)
    monitor.start()
    with netlink(monitor.namespace) as link:
        link.add_loopback_addresses(FIRST)
        assert is_reading.wait(TIMEOUT)
        for _ in range(200):
            link.add_loopback_addresses(SECOND)
            link.remove_loopback_addresses(SECOND)
        link.remove_loopback_addresses(FIRST)
        link.add_loopback_addresses(SECOND)
    go_on.set()
    monitor.wait_for(LOOPBACK | _both(SECOND))
    assert caplog.messages == []


def test_addresses_are_polled_without_notifications(
    monitor: MonitorThread, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning is logged, and one line when notifications work again."""
    tries: list[int] = []
    listen = addresses.open_notifications

    def refused() -> socket.socket:
        tries.append(1)
        msg = "refused for the test"
        raise KernelError(msg)

    monkeypatch.setattr(addresses, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(addresses, "open_notifications", refused)
    caplog.set_level("INFO", "knft")
    monitor.start()
    with netlink(monitor.namespace) as link:
        link.add_loopback_addresses(FIRST)
        monitor.wait_for(LOOPBACK | _both(FIRST))
        monitor.until(lambda: len(tries) > 3)
        monkeypatch.setattr(addresses, "open_notifications", listen)
        monitor.until(lambda: len(caplog.messages) > 1)
        link.add_loopback_addresses(SECOND)
        monitor.wait_for(LOOPBACK | _both(FIRST) | _both(SECOND))
    assert caplog.messages == [
        "refused for the test; reading the interface addresses every 0.02 s instead",
        "netlink notifications of address changes work again",
    ]
