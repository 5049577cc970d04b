"""The API server as what ``knft run`` has its objects from: when it is done with its start."""

import logging
import threading
import time
from collections.abc import Iterable
from typing import Any

import pytest

from knft.app.feeds import ApiServerFeed
from knft.app.shutdown import Shutdown
from knft.configuration.load import load_settings
from knft.model.objects import Node, ObjectChange
from tests.apiserver.running_source import NODE, wait_until
from tests.support.fake_api.cluster import node
from tests.support.fake_api.responses import TEST_TIMEOUT, never_respond
from tests.support.fake_api.server import FakeApiServer


class SlowDaemon:
    """Takes in a Node slowly."""

    def __init__(self) -> None:
        self.taken: list[ObjectChange] = []

    def handle(self, changes: Iterable[ObjectChange]) -> None:
        found = list(changes)
        if any(isinstance(change.current, Node) for change in found):
            time.sleep(0.5)
        self.taken += found


def test_the_node_is_taken_in_before_the_first_sync() -> None:
    """Without its addresses and its zone, the rules of an earlier process would be unmade, and made again."""
    with FakeApiServer() as server:
        server.cluster.put("nodes", node(NODE, "192.0.2.11"))
        feed = ApiServerFeed(load_settings({"--master": server.url, "--hostname-override": NODE}, "host", _no_file))
        daemon: Any = SlowDaemon()
        shutdown = Shutdown(threading.Event(), grace_seconds=0, exit_process=lambda _: None)
        try:
            feed.start(daemon, shutdown)
            assert [type(change.current) for change in daemon.taken] == [Node]
        finally:
            shutdown.stop.set()


def test_a_node_that_nobody_has_told_of_yet_does_not_lack(caplog: pytest.LogCaptureFixture) -> None:
    """What is waited for then is the server, however long it takes (J.3)."""
    caplog.set_level(logging.INFO, "knft")
    with FakeApiServer() as server:
        server.respond_next("nodes", never_respond, times=100)
        feed = ApiServerFeed(load_settings({"--master": server.url, "--hostname-override": NODE}, "host", _no_file))
        shutdown = Shutdown(threading.Event(), grace_seconds=0, exit_process=lambda _: None)
        daemon: Any = SlowDaemon()
        starting = threading.Thread(target=feed.start, args=[daemon, shutdown])
        starting.start()
        wait_until(lambda: any("waiting: " in line for line in caplog.messages), "it says what it waits for")
        shutdown.stop.set()
        starting.join(TEST_TIMEOUT)
    text = "waiting: the API server has not answered yet"
    assert [line for line in caplog.messages if "waiting: " in line] == [text]


def _no_file(path: str) -> bytes:
    raise AssertionError(path)
