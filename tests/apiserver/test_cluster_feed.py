"""ApiServerFeed, the source of ``knft run``: what has happened when ``start`` returns."""

import logging
import threading
import time
from collections.abc import Iterable
from typing import Any

import pytest

from knft.app.object_feeds import ApiServerFeed
from knft.app.shutdown import Shutdown
from knft.configuration.load import load_settings
from knft.model.objects import Node, ObjectChange
from tests.apiserver.running_source import NODE, wait_until
from tests.support.fake_api.cluster import node
from tests.support.fake_api.responses import TEST_TIMEOUT, never_respond
from tests.support.fake_api.server import FakeApiServer


class SlowDaemon:
    """Handles a Node slowly."""

    def __init__(self) -> None:
        self.taken: list[ObjectChange] = []

    def handle(self, changes: Iterable[ObjectChange]) -> None:
        found = list(changes)
        if any(isinstance(change.current, Node) for change in found):
            time.sleep(0.5)
        self.taken += found


def test_node_reaches_the_daemon_before_start_returns() -> None:
    """Otherwise a first sync without the node's addresses and zone would change existing rules and change them back."""
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


def test_start_waits_for_the_server_while_the_node_is_unknown(caplog: pytest.LogCaptureFixture) -> None:
    """The time until the server answers does not count as waiting for the Node (docs/behaviour/node.md#node)."""
    caplog.set_level(logging.INFO, "knft")
    with FakeApiServer() as server:
        server.respond_next("nodes", never_respond, times=100)
        feed = ApiServerFeed(load_settings({"--master": server.url, "--hostname-override": NODE}, "host", _no_file))
        shutdown = Shutdown(threading.Event(), grace_seconds=0, exit_process=lambda _: None)
        daemon: Any = SlowDaemon()
        starting = threading.Thread(target=feed.start, args=[daemon, shutdown])
        assert feed.status().unlisted == ("services", "endpointslices", "servicecidrs", "nodes")
        starting.start()
        wait_until(lambda: feed.status().unlisted == ("nodes",), "the other resources are listed")
        wait_until(lambda: any("waiting: " in line for line in caplog.messages), "knft logs what it waits for")
        shutdown.stop.set()
        starting.join(TEST_TIMEOUT)
    text = "waiting: the API server has not answered yet"
    assert [line for line in caplog.messages if "waiting: " in line] == [text]


def _no_file(path: str) -> bytes:
    raise AssertionError(path)
