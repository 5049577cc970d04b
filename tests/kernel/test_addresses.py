"""AddressFollower: told of every change by the kernel, and by nobody else."""

import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from knft.errors import KernelError
from knft.kernel import addresses
from knft.kernel.addresses import AddressFollower, local_addresses
from tests.support.lab.links import netlink
from tests.support.lab.namespace import Namespace
from tests.support.lab.plan import LAN, Addresses

pytestmark = pytest.mark.kernel
HANG = 30.0
FIRST, SECOND = LAN.at(11), LAN.at(12)
LOOPBACK = frozenset({"127.0.0.1", "::1"})


def _both(item: Addresses) -> frozenset[str]:
    return frozenset({item.ipv4, item.ipv6})


class Following:
    """A follower in a thread, in a namespace whose loopback is up."""

    def __init__(self, namespace: Namespace) -> None:
        self.namespace = namespace
        self.told: list[frozenset[str]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="addresses")

    def _run(self) -> None:
        with self.namespace.entered():
            AddressFollower().follow(self._stop, self.told.append)

    def start(self) -> None:
        self._thread.start()
        self.until(lambda: bool(self.told))

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(HANG)
        assert not self._thread.is_alive()

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + HANG
        while not condition():
            assert time.monotonic() < deadline, self.told
            time.sleep(0.005)

    def until_told(self, expected: frozenset[str]) -> None:
        self.until(lambda: self.told[-1] == expected)


@pytest.fixture
def following(namespace: Namespace) -> Iterator[Following]:
    with netlink(namespace) as link:
        link.up("lo")
    found = Following(namespace)
    yield found
    found.stop()


@pytest.fixture
def never_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a follower that waits for its next look wait for longer than the test."""
    monkeypatch.setattr(addresses, "POLL_SECONDS", 10 * HANG)


@pytest.mark.usefixtures("never_polling")
def test_addresses_that_come_and_go_are_told(following: Following) -> None:
    following.start()
    assert following.told == [LOOPBACK]
    with netlink(following.namespace) as link:
        link.add_own_addresses(FIRST)
        following.until_told(LOOPBACK | _both(FIRST))
        link.add_own_addresses(SECOND)
        following.until_told(LOOPBACK | _both(FIRST) | _both(SECOND))
        link.remove_own_addresses(FIRST)
        following.until_told(LOOPBACK | _both(SECOND))
    with following.namespace.entered():
        assert following.told[-1] == local_addresses()


@pytest.mark.usefixtures("never_polling")
def test_nothing_is_told_twice(following: Following) -> None:
    following.start()
    with netlink(following.namespace) as link:
        for _ in range(5):
            link.add_own_addresses(FIRST)
            link.remove_own_addresses(FIRST)
        link.add_own_addresses(SECOND)
    following.until_told(LOOPBACK | _both(SECOND))
    assert all(before != after for before, after in zip(following.told, following.told[1:], strict=False))


@pytest.mark.usefixtures("never_polling")
def test_a_flood_that_overruns_the_buffer_is_followed_to_its_end(
    following: Following, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The kernel loses what does not fit, which is no failure; the last change is found all the same."""
    monkeypatch.setattr(addresses, "BUFFER_BYTES", 1)
    looking, go_on = threading.Event(), threading.Event()
    read = addresses.local_addresses

    def slowly() -> frozenset[str]:
        found = read()
        if following.told:
            looking.set()
            assert go_on.wait(HANG)
        return found

    monkeypatch.setattr(addresses, "local_addresses", slowly)
    following.start()
    with netlink(following.namespace) as link:
        link.add_own_addresses(FIRST)
        assert looking.wait(HANG)
        for _ in range(200):
            link.add_own_addresses(SECOND)
            link.remove_own_addresses(SECOND)
        link.remove_own_addresses(FIRST)
        link.add_own_addresses(SECOND)
    go_on.set()
    following.until_told(LOOPBACK | _both(SECOND))
    assert caplog.messages == []


def test_without_notifications_they_are_read_now_and_then(
    following: Following, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With a warning, which is said once; and as ever once there are notifications again."""
    tries: list[int] = []
    listen = addresses.listen

    def refused() -> socket.socket:
        tries.append(1)
        msg = "refused for the test"
        raise KernelError(msg)

    monkeypatch.setattr(addresses, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(addresses, "listen", refused)
    caplog.set_level("INFO", "knft")
    following.start()
    with netlink(following.namespace) as link:
        link.add_own_addresses(FIRST)
        following.until_told(LOOPBACK | _both(FIRST))
        following.until(lambda: len(tries) > 3)
        monkeypatch.setattr(addresses, "listen", listen)
        following.until(lambda: len(caplog.messages) > 1)
        link.add_own_addresses(SECOND)
        following.until_told(LOOPBACK | _both(FIRST) | _both(SECOND))
    assert caplog.messages == [
        "refused for the test; the machine's addresses are read every 0.02 s",
        "changes of the machine's addresses are told by the kernel again",
    ]
