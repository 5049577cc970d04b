"""A table with a skeleton of another version is replaced when knft starts, and its clients stay where they are."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.packets.crowd import HTTP, PODS, STICKY, clients
from tests.packets.killing import WITHOUT_END, Lives
from tests.packets.node import knft, write_manifests
from tests.packets.programmed import both_protocols, endpoints, service
from tests.packets.running import Monitor
from tests.packets.scenario import VERSIONS, Scenario, address
from tests.support.lab.answering import Answering
from tests.support.lab.calls import NONE, Callers, Target
from tests.support.lab.links import forget_flows
from tests.support.lab.topology import Lab
from tests.support.lab.traffic import dial_each

CROWD = 250
PAUSE = 0.001
CLUSTER = Scenario(
    "",
    [
        service("kept", 50, *both_protocols("http", 80), **STICKY),
        endpoints("kept", *PODS, http=HTTP),
        service("open", 51, *both_protocols("http", 80)),
        endpoints("open", *PODS, http=HTTP),
    ],
    (),
)

pytestmark = pytest.mark.kernel


@pytest.fixture
def served(crowded_lab: Lab) -> Iterator[Lab]:
    """The lab, with servers; what knft has left is taken away afterwards."""
    node = crowded_lab.host("node").namespace
    forget_flows(node)
    with Answering(map(crowded_lab.host, PODS), [HTTP]):
        yield crowded_lab
    knft(node, "cleanup")
    forget_flows(node)


def _answers(lab: Lab) -> dict[str, str]:
    """Return who answers each client of the crowd, in both families."""
    found: dict[str, str] = {}
    for version in VERSIONS:
        found |= dial_each(lab.host("outside"), address("cluster.50", version), 80, "tcp", clients(version, CROWD))
    return found


def _make_it_another_version(lab: Lab) -> None:
    """Take the layout's marker away from both tables, as if another knft had made them."""
    node = lab.host("node").namespace
    for family in ("ip", "ip6"):
        listed = node.run(["nft", "list", "chains", family]).stdout.split()
        (marker,) = (word for word in listed if word.startswith("layout-"))
        node.run(["nft", "delete", "chain", family, "knft", marker])


def test_the_skeleton_of_another_version_is_replaced_and_clients_stay(served: Lab, tmp_path: Path) -> None:
    """Under connections, of which the few that meet the replacement may be lost (DESIGN.md 1.2); others are not."""
    node, manifests = served.host("node").namespace, tmp_path / "manifests"
    manifests.mkdir()
    write_manifests(manifests, CLUSTER.manifests())
    targets = [Target(address("cluster.51", version), 80, "tcp") for version in VERSIONS]
    callers = Callers({served.host("local-4"): targets}, tmp_path, WITHOUT_END, seed=1, pause=PAUSE)
    with Lives(node, manifests, tmp_path) as lives:
        first = _answers(served)
        assert set(first.values()) == set(PODS)
        lives.now.kill()
        _make_it_another_version(served)
        with callers, Monitor(node, tmp_path / "monitor") as monitor:
            lives.start()
            lives.now.until_in_force()
            lives.now.until_quiet()
        assert {"delete table ip knft", "delete table ip6 knft"} <= set(monitor.changes())
        assert _answers(served) == first
    calls = list(callers.calls(served.host("local-4")))
    lost = [call for call in calls if call.trouble != NONE or call.again]
    print(f"{len(lost)} of {len(calls)} connections were lost to the replacement: {[str(call) for call in lost]}")
    assert {call.server for call in calls} <= {*PODS, NONE}
    assert len(lost) <= len(calls) // 100
