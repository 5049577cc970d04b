"""The API server as what ``knft run`` has its objects from: when it is done with its start."""

import logging
import threading
import time
from collections.abc import Iterable
from typing import Any

import pytest

from knft.cli.ending import Ending
from knft.cli.feeds import ClusterFeed
from knft.configuration.load import settings_from
from knft.model.objects import Change, Node
from tests.apiserver.answers import HUNG, hang
from tests.apiserver.cluster import node
from tests.apiserver.following import NODE, until
from tests.apiserver.server import ApiServer


class SlowDaemon:
    """Takes in a Node slowly."""

    def __init__(self) -> None:
        self.taken: list[Change] = []

    def handle(self, changes: Iterable[Change]) -> None:
        found = list(changes)
        if any(isinstance(change.current, Node) for change in found):
            time.sleep(0.5)
        self.taken += found


def test_the_node_is_taken_in_before_the_first_sync() -> None:
    """Without its addresses and its zone, the rules of an earlier process would be unmade, and made again."""
    with ApiServer() as server:
        server.cluster.put("nodes", node(NODE, "192.0.2.11"))
        feed = ClusterFeed(settings_from({"--master": server.url, "--hostname-override": NODE}, "host", _no_file))
        daemon: Any = SlowDaemon()
        ending = Ending(threading.Event(), patience=0, leave=lambda _: None)
        try:
            feed.start(daemon, ending)
            assert [type(change.current) for change in daemon.taken] == [Node]
        finally:
            ending.stop.set()


def test_a_node_that_nobody_has_told_of_yet_does_not_lack(caplog: pytest.LogCaptureFixture) -> None:
    """What is waited for then is the server, however long it takes (J.3)."""
    caplog.set_level(logging.INFO, "knft")
    with ApiServer() as server:
        server.demand("nodes", hang, times=100)
        feed = ClusterFeed(settings_from({"--master": server.url, "--hostname-override": NODE}, "host", _no_file))
        ending = Ending(threading.Event(), patience=0, leave=lambda _: None)
        daemon: Any = SlowDaemon()
        starting = threading.Thread(target=feed.start, args=[daemon, ending])
        starting.start()
        until(lambda: any("waiting: " in line for line in caplog.messages), "it says what it waits for")
        ending.stop.set()
        starting.join(HUNG)
    said = "waiting: the API server has not answered yet"
    assert [line for line in caplog.messages if "waiting: " in line] == [said]


def _no_file(path: str) -> bytes:
    raise AssertionError(path)
