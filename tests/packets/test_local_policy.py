"""Policy Local never leaks: no remote endpoint ever answers an outside client, whatever happens meanwhile."""

import threading
from collections import Counter

import pytest

from tests.lab import plan
from tests.lab.outcomes import Protocol
from tests.lab.responders import Responders
from tests.lab.topology import Lab
from tests.lab.traffic import NOBODY_ANSWERED, dial_many
from tests.packets.programmed import ProgrammedNode, both_protocols, endpoints, service
from tests.packets.scenario import VERSIONS, address

FLIPS = 100
HTTP = 8080
NODE_PORT = 30060

pytestmark = pytest.mark.kernel


@pytest.mark.parametrize("sticky", [False, True], ids=["at random", "sticky"])
@pytest.mark.parametrize("protocol", ["tcp", "udp"])
@pytest.mark.parametrize("version", VERSIONS)
def test_no_remote_endpoint_answers_while_the_local_one_comes_and_goes(
    lab: Lab, version: plan.Version, protocol: Protocol, *, sticky: bool
) -> None:
    """One local endpoint and none, as fast as syncs go, under connections; remote ones are there all the time."""
    affinity = {"sessionAffinity": "ClientIP"} if sticky else {}
    local_only = service("s", 60, *both_protocols("http", 80, NODE_PORT), externalTrafficPolicy="Local", **affinity)
    answered: Counter[str] = Counter()
    stop = threading.Event()

    def keep_dialling() -> None:
        target = address("node", version)
        while not stop.is_set():
            answered.update(dial_many(lab.host("outside"), target, NODE_PORT, protocol, 20, timeout=0.02))

    with Responders() as servers, ProgrammedNode(lab) as node:
        for pod in ("local-1", "remote-1", "remote-2"):
            servers.serve(lab.host(pod), HTTP, protocol)
        node.apply([local_only, endpoints("s", "remote-1", "remote-2", http=HTTP)])
        client = threading.Thread(target=keep_dialling)
        client.start()
        try:
            for flip in range(FLIPS):
                local = ("local-1",) if flip % 2 == 0 else ()
                node.apply([endpoints("s", *local, "remote-1", "remote-2", http=HTTP)])
        finally:
            stop.set()
            client.join()

    assert answered["local-1"] > 0
    assert answered.keys() <= {"local-1", NOBODY_ANSWERED}
