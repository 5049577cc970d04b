"""A table that knft cannot adopt is replaced when knft starts; sticky clients keep their endpoints."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.knft_command import knft, write_manifests
from tests.support.lab.clients import NONE, ClientProcesses, ClientTarget
from tests.support.lab.links import flush_conntrack
from tests.support.lab.responder_process import ResponderProcess
from tests.support.lab.topology import Lab
from tests.support.lab.traffic import dial_each
from tests.support.packets.kill_and_restart import ENDLESS, RestartedKnft
from tests.support.packets.manifest_knft import NftMonitor
from tests.support.packets.many_clients import HTTP, PODS, STICKY, clients
from tests.support.packets.programmed import endpoints, service, tcp_and_udp
from tests.support.scenario import VERSIONS, Scenario, address

STICKY_CLIENTS = 250
PAUSE = 0.001
CLUSTER = Scenario(
    "",
    [
        service("kept", 50, *tcp_and_udp("http", 80), **STICKY),
        endpoints("kept", *PODS, http=HTTP),
        service("open", 51, *tcp_and_udp("http", 80)),
        endpoints("open", *PODS, http=HTTP),
    ],
    (),
)
OTHER_HOOK = """
    delete chain {family} knft filter-forward
    add chain {family} knft filter-forward {{ type filter hook forward priority 7; }}
"""

pytestmark = pytest.mark.kernel


@pytest.fixture
def served(lab_with_clients: Lab) -> Iterator[Lab]:
    """The lab with servers; knft's tables are removed afterwards."""
    node = lab_with_clients.host("node").namespace
    flush_conntrack(node)
    with ResponderProcess(map(lab_with_clients.host, PODS), [HTTP]):
        yield lab_with_clients
    knft(node, "cleanup")
    flush_conntrack(node)


def _answers(lab: Lab) -> dict[str, str]:
    """Return the server of each sticky client, in both families."""
    found: dict[str, str] = {}
    for version in VERSIONS:
        found |= dial_each(
            lab.host("outside"), address("cluster.50", version), 80, "tcp", clients(version, STICKY_CLIENTS)
        )
    return found


def _change_hook(lab: Lab) -> None:
    """Give a base chain of both tables another priority, as another version of knft may have declared it."""
    for family in ("ip", "ip6"):
        lab.host("node").namespace.run(["nft", "-f", "-"], stdin=OTHER_HOOK.format(family=family))


def test_table_with_another_hook_is_replaced_and_sticky_clients_stay(served: Lab, tmp_path: Path) -> None:
    """Clients connect meanwhile: only the few connections during the replacement may be lost."""
    node, manifests = served.host("node").namespace, tmp_path / "manifests"
    manifests.mkdir()
    write_manifests(manifests, CLUSTER.manifests())
    targets = [ClientTarget(address("cluster.51", version), 80, "tcp") for version in VERSIONS]
    client_processes = ClientProcesses({served.host("local-4"): targets}, tmp_path, ENDLESS, seed=1, pause=PAUSE)
    with RestartedKnft(node, manifests, tmp_path) as restarted:
        first = _answers(served)
        assert set(first.values()) == set(PODS)
        restarted.process.kill()
        _change_hook(served)
        with client_processes, NftMonitor(node, tmp_path / "monitor") as monitor:
            restarted.start()
            restarted.process.wait_for_full_syncs()
            restarted.process.wait_until_idle()
        assert {"delete table ip knft", "delete table ip6 knft"} <= set(monitor.changes())
        assert _answers(served) == first
    connections = list(client_processes.connections(served.host("local-4")))
    lost = [connection for connection in connections if connection.error != NONE or connection.retransmissions]
    print(f"{len(lost)} of {len(connections)} connections were lost: {[str(connection) for connection in lost]}")
    assert {connection.server for connection in connections} <= {*PODS, NONE}
    assert len(lost) <= len(connections) // 100
