"""The variables and the socket of sd_notify(3)."""

import logging
import os
from pathlib import Path

import pytest

from knft.app.notify_socket import NotifySettings, NotifySocket, take_notify_settings
from tests.app.notify_receiver import NotifyReceiver


@pytest.mark.parametrize("is_abstract", [False, True])
def test_assignments_are_one_message(tmp_path: Path, *, is_abstract: bool) -> None:
    with NotifyReceiver(None if is_abstract else tmp_path / "notify") as receiver:
        assert receiver.address.startswith("@" if is_abstract else "/")
        sender = NotifySocket(receiver.address)
        sender.send("READY=1", "STATUS=ready")
        sender.close()
        assert receiver.receive() == ["READY=1", "STATUS=ready"]


def test_child_process_inherits_neither_variables_nor_socket(tmp_path: Path) -> None:
    own = {"WATCHDOG_USEC": "2000000", "WATCHDOG_PID": str(os.getpid()), "OTHER": "stays"}
    with NotifyReceiver(tmp_path / "notify") as receiver:
        environment = {"NOTIFY_SOCKET": receiver.address, **own}
        settings = take_notify_settings(environment)
        assert settings == NotifySettings(receiver.address, 2.0)
        assert environment == {"OTHER": "stays"}
        sender = NotifySocket(settings.address)
        assert not os.get_inheritable(sender._socket.fileno())
        sender.close()


@pytest.mark.parametrize(
    ("variables", "seconds"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
    ],
)
def test_watchdog_of_this_process_has_a_period(variables: dict[str, str], seconds: float | None) -> None:
    settings = take_notify_settings({"NOTIFY_SOCKET": "/run/systemd/notify", **variables})
    assert settings == NotifySettings("/run/systemd/notify", seconds)


@pytest.mark.parametrize("address", ["", "relative", "vsock:2:1234"])
def test_other_addresses_are_ignored(address: str) -> None:
    environment = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "1"}
    assert take_notify_settings(environment) is None
    assert environment == {}


def test_missing_service_manager_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "gone"
    with caplog.at_level(logging.WARNING):
        sender = NotifySocket(str(path))
        sender.send("READY=1")
        sender.close()
    assert caplog.messages == [f"cannot notify the service manager at {path}: No such file or directory"]
