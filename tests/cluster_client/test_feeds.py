"""The API server as what ``knft run`` has its objects from: when it is done with its start."""

import threading
import time
from collections.abc import Iterable
from typing import Any

from knft.cli.ending import Ending
from knft.cli.feeds import ClusterFeed
from knft.configuration.load import settings_from
from knft.model.objects import Change, Node
from tests.cluster_client.cluster import node
from tests.cluster_client.following import NODE
from tests.cluster_client.server import ApiServer


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


def _no_file(path: str) -> bytes:
    raise AssertionError(path)
