"""Policy Local never leaks: no remote endpoint ever answers an outside client, whatever happens meanwhile."""

import threading
from collections import Counter
from contextlib import AbstractContextManager
from typing import Any

import pytest

from tests.packets.programmed import ProgrammedNode, endpoints, service, tcp_and_udp, with_load_balancer
from tests.support.background import run_in_background
from tests.support.lab.outcomes import Protocol
from tests.support.lab.responders import Responders
from tests.support.lab.topology import Lab
from tests.support.lab.traffic import NO_ANSWER, Target, dial_at_once
from tests.support.scenario import VERSIONS, address

FLIPS = 300
AT_LEAST = 100
"""So many connections at least must have been answered, in each family and protocol and at each kind of frontend."""
HTTP = 8080
NODE_PORT = 30060
PROTOCOLS: tuple[Protocol, ...] = ("tcp", "udp")
GUARDED = (("node", NODE_PORT), ("external.60", 80), ("external.61", 80))
"""NodePort, load balancer VIP and external IP: policy Local is for these."""
OPEN = ("cluster.60", 80)
"""The cluster IP, where the same clients may be led to remote endpoints, and be remembered there."""

pytestmark = pytest.mark.kernel


class Wave:
    """One connection to every frontend, in both families and protocols at once, and all over again in a thread."""

    def __init__(self, lab: Lab) -> None:
        self._outside = lab.host("outside")
        frontends = (*GUARDED, OPEN)
        self._called = [(*frontend, v, p) for frontend in frontends for v in VERSIONS for p in PROTOCOLS]
        self._targets = [Target(address(name, v), port, p) for name, port, v, p in self._called]
        self.answered: dict[tuple[Any, ...], Counter[str]] = {key: Counter() for key in self._called}

    def rolling(self) -> AbstractContextManager[None]:
        """Dial during the block."""
        return run_in_background(self._roll, "wave")

    def _roll(self, stop: threading.Event) -> None:
        # Without a pause the thread that syncs would hardly get a turn.
        while not stop.wait(0.02):
            for key, name in zip(self._called, dial_at_once(self._outside, self._targets, timeout=0.01), strict=True):
                self.answered[key][name] += 1

    @property
    def least(self) -> int:
        """How many connections were answered at the frontend and way with the fewest."""
        return min(found.total() - found[NO_ANSWER] for found in self.answered.values())

    def of(self, *frontends: tuple[str, int]) -> set[str]:
        """Return who has answered at these frontends."""
        found = (names for key, names in self.answered.items() if key[:2] in frontends)
        return set().union(*found) - {NO_ANSWER}


@pytest.mark.parametrize("sticky", [False, True], ids=["at random", "sticky"])
def test_no_remote_endpoint_answers_while_the_local_one_comes_and_goes(lab: Lab, *, sticky: bool) -> None:
    """One local endpoint and none, as fast as syncs go, under connections; remote ones are there all the time."""
    affinity = {"sessionAffinity": "ClientIP"} if sticky else {}
    local_only = {"externalTrafficPolicy": "Local", "externalIPs": ["$external.61"], **affinity}
    guarded = with_load_balancer(service("s", 60, *tcp_and_udp("http", 80, NODE_PORT), **local_only), "$external.60")
    wave, remote = Wave(lab), ("remote-1", "remote-2")
    with Responders() as servers, ProgrammedNode(lab) as node:
        for pod in ("local-1", *remote):
            for protocol in PROTOCOLS:
                servers.serve(lab.host(pod), HTTP, protocol)
        node.apply([guarded, endpoints("s", *remote, http=HTTP)])
        with wave.rolling():
            for flip in range(20 * FLIPS):
                local = ("local-1",) if flip % 2 == 0 else ()
                node.apply([endpoints("s", *local, *remote, http=HTTP)])
                if flip >= FLIPS and wave.least >= AT_LEAST:
                    break

    assert wave.least >= AT_LEAST
    assert wave.of(*GUARDED) == {"local-1"}
    assert wave.of(OPEN) & set(remote)
