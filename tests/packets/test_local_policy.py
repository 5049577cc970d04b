"""With external policy Local, no remote endpoint ever answers an outside client, while endpoints change."""

import itertools
import threading
import time
from collections import Counter
from contextlib import AbstractContextManager
from typing import Any

import pytest

from tests.support.background import run_in_background
from tests.support.lab.outcomes import Protocol
from tests.support.lab.responders import Responders
from tests.support.lab.topology import Lab
from tests.support.lab.traffic import NO_ANSWER, DialTarget, dial_at_once
from tests.support.packets.programmed import ProgrammedNode, endpoints, service, tcp_and_udp, with_load_balancer
from tests.support.scenario import VERSIONS, address
from tests.support.waiting import TIMEOUT

MIN_CHANGES = 300
MIN_ANSWERS = 100
"""The least number of answered connections in each family and protocol and at each frontend."""
HTTP = 8080
NODE_PORT = 30060
PROTOCOLS: tuple[Protocol, ...] = ("tcp", "udp")
LOCAL_ONLY = (("node", NODE_PORT), ("external.60", 80), ("external.61", 80))
"""NodePort, load balancer IP and external IP: policy Local applies to them."""
CLUSTER_IP = ("cluster.60", 80)
"""The cluster IP, where the same clients may reach remote endpoints, and be remembered there."""

pytestmark = pytest.mark.kernel


class RepeatedDials:
    """Clients that connect to every frontend in both families and protocols at once, repeatedly, in a thread."""

    def __init__(self, lab: Lab) -> None:
        self._outside = lab.host("outside")
        frontends = (*LOCAL_ONLY, CLUSTER_IP)
        self._frontends = [(*frontend, v, p) for frontend in frontends for v in VERSIONS for p in PROTOCOLS]
        self._targets = [DialTarget(address(name, v), port, p) for name, port, v, p in self._frontends]
        self.answered: dict[tuple[Any, ...], Counter[str]] = {key: Counter() for key in self._frontends}

    def running(self) -> AbstractContextManager[None]:
        """Connect during the block."""
        return run_in_background(self._run, "dials")

    def _run(self, stop: threading.Event) -> None:
        # Without a pause the thread that syncs would rarely get the interpreter lock.
        while not stop.wait(0.02):
            for key, name in zip(
                self._frontends, dial_at_once(self._outside, self._targets, timeout=0.05), strict=True
            ):
                self.answered[key][name] += 1

    @property
    def smallest_count(self) -> int:
        """The number of answered connections where it is smallest."""
        return min(found.total() - found[NO_ANSWER] for found in self.answered.values())

    def servers_at(self, *frontends: tuple[str, int]) -> set[str]:
        """Return the servers that have answered at these frontends."""
        found = (names for key, names in self.answered.items() if key[:2] in frontends)
        return set().union(*found) - {NO_ANSWER}


@pytest.mark.parametrize("sticky", [False, True], ids=["at random", "sticky"])
def test_no_remote_endpoint_answers_while_the_local_one_is_added_and_removed(lab: Lab, *, sticky: bool) -> None:
    """The local endpoint is removed and added as fast as knft syncs; remote endpoints are always there."""
    affinity = {"sessionAffinity": "ClientIP"} if sticky else {}
    local_only = {"externalTrafficPolicy": "Local", "externalIPs": ["$external.61"], **affinity}
    local_service = with_load_balancer(
        service("s", 60, *tcp_and_udp("http", 80, NODE_PORT), **local_only), "$external.60"
    )
    dials, remote = RepeatedDials(lab), ("remote-1", "remote-2")
    with Responders() as servers, ProgrammedNode(lab) as node:
        for pod in ("local-1", *remote):
            for protocol in PROTOCOLS:
                servers.serve(lab.host(pod), HTTP, protocol)
        node.apply([local_service, endpoints("s", *remote, http=HTTP)])
        deadline = time.monotonic() + 3 * TIMEOUT
        with dials.running():
            for number in itertools.count():
                local = ("local-1",) if number % 2 == 0 else ()
                node.apply([endpoints("s", *local, *remote, http=HTTP)])
                assert time.monotonic() < deadline, "too few connections are answered"
                if number >= MIN_CHANGES and dials.smallest_count >= MIN_ANSWERS:
                    break

    assert dials.smallest_count >= MIN_ANSWERS
    assert dials.servers_at(*LOCAL_ONLY) == {"local-1"}
    assert dials.servers_at(CLUSTER_IP) & set(remote)
