"""``knft top`` asks a real ``knft run --service-counters``, whose frontends are dialled."""

import itertools
import os
import pty
import re
import socket
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.control.daemon import ControlledKnft
from tests.support.kernel_harness import service, slices
from tests.support.knft_command import KNFT, knft

pytestmark = pytest.mark.kernel


@pytest.fixture(scope="module")
def counting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlledKnft]:
    running = ControlledKnft(tmp_path_factory.mktemp("daemon"), (11,), "--service-counters")
    running.write("empty", service("empty", 2))
    running.wait_until_synced()
    for command in ("link set lo up", "route add local 10.96.0.0/16 dev lo"):
        running.namespace.run(["ip", *command.split()])
    yield running
    running.close()


def _connect(daemon: ControlledKnft, count: int) -> None:
    with daemon.namespace.entered():
        for _ in range(count):
            with socket.socket() as client:
                client.settimeout(0)
                client.connect_ex(("10.96.0.2", 80))


def _ask(daemon: ControlledKnft) -> dict[str, Any]:
    found: dict[str, Any] = daemon.ask("top")
    return found


def test_connections_and_syncs_are_printed_once_when_piped(counting: ControlledKnft) -> None:
    _connect(counting, 3)
    counting.wait_until(lambda: bool(_ask(counting)["services"]))
    found = _ask(counting)
    assert [(row["service"], row["total"]) for row in found["services"]] == [("default/empty:http", 3)]
    assert [row["frontend"] for row in found["frontends"]] == ["10.96.0.2:80/tcp"]
    assert found["seconds"] > 0
    assert counting.ask("top", "--filter", "other")["services"] == []
    lines = knft(counting.namespace, "top", "--by", "frontend").stdout.splitlines()
    assert (lines[0], found["node"]) == ("node node-1", "node-1")
    assert lines[1].split() == ["FAMILY", "SYNCS/S", "FAILED/S", "DURATION", "LATENCY"]
    assert lines[-1].split()[:2] == ["default/empty:http", "10.96.0.2:80/tcp"]
    assert lines[-1].split()[-1] == "3"


def test_syncs_of_changes_have_a_rate_a_duration_and_a_latency(daemon: ControlledKnft) -> None:
    stop = threading.Event()

    def change_endpoints() -> None:
        for number in itertools.cycle((11, 12)):
            changed = slices("web", (number,))
            for each in changed:
                triggered = datetime.now(UTC).isoformat().replace("+00:00", "Z")
                each["metadata"]["annotations"] = {"endpoints.kubernetes.io/last-change-trigger-time": triggered}
            daemon.write("web", service("web", 1), *changed)
            if stop.wait(0.05):
                return

    def shows_syncs() -> bool:
        ipv4, ipv6 = (line.split() for line in knft(daemon.namespace, "top").stdout.splitlines()[2:4])
        assert (ipv4[0], ipv6[0]) == ("IPv4", "IPv6")
        return all(float(syncs) > 0 and "-" not in times for _, syncs, _, *times in (ipv4, ipv6))

    thread = threading.Thread(target=change_endpoints)
    thread.start()
    try:
        daemon.wait_until(shows_syncs)
    finally:
        stop.set()
        thread.join()


def test_terminal_follows_the_connections_until_q(counting: ControlledKnft) -> None:
    controller, terminal = pty.openpty()
    process = counting.namespace.popen([*KNFT, "top"], stdin=terminal, stdout=terminal, stderr=terminal)
    os.close(terminal)
    shown = ""

    def shows(pattern: str) -> bool:
        nonlocal shown
        shown += os.read(controller, 1 << 16).decode(errors="replace")
        return re.search(pattern, shown) is not None

    def shows_rate() -> bool:
        _connect(counting, 1)
        return shows(r"default/empty:http +[1-9]")

    counting.wait_until(shows_rate)
    os.write(controller, b"f/no such")
    counting.wait_until(lambda: shows("filter: no such_\r\n"))
    counting.wait_until(lambda: shows("no connections to a Service with 'no such'"))
    os.write(controller, b"\x1b")
    counting.wait_until(lambda: shows("10.96.0.2:80/tcp"))
    os.write(controller, b"q")
    assert process.wait() == 0
    os.close(controller)


def test_knft_that_does_not_count_prints_its_syncs(daemon: ControlledKnft) -> None:
    lines = knft(daemon.namespace, "top").stdout.splitlines()
    assert [line.split()[0] for line in lines[:4]] == ["node", "FAMILY", "IPv4", "IPv6"]
    assert lines[-1] == "knft counts no connections: start it with --service-counters"
