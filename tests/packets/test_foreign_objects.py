"""A foreign base chain that drops all packets disappears from knft's table, and traffic flows again."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.knft_command import knft, write_manifests
from tests.support.lab.links import flush_conntrack
from tests.support.lab.responder_process import ResponderProcess
from tests.support.lab.topology import Lab
from tests.support.lab.traffic import dial_each
from tests.support.packets.kill_and_restart import RestartedKnft
from tests.support.packets.many_clients import HTTP, PODS
from tests.support.packets.programmed import endpoints, service, tcp_and_udp
from tests.support.scenario import VERSIONS, Scenario, address
from tests.support.waiting import wait_until

CLUSTER = Scenario("", [service("web", 50, *tcp_and_udp("http", 80)), endpoints("web", *PODS, http=HTTP)], ())
DROP_ALL = """
    table {family} knft {{
        counter dropped {{
        }}
        chain evil {{
            type filter hook prerouting priority -300; policy drop;
            counter name dropped
        }}
    }}
"""
LINE = "knft repaired the table and read it back; it removed chain evil, counter dropped"

pytestmark = pytest.mark.kernel


@pytest.fixture
def restarted(lab_with_clients: Lab, tmp_path: Path) -> Iterator[RestartedKnft]:
    node, manifests = lab_with_clients.host("node").namespace, tmp_path / "manifests"
    manifests.mkdir()
    write_manifests(manifests, CLUSTER.manifests())
    flush_conntrack(node)
    with (
        ResponderProcess(map(lab_with_clients.host, PODS), [HTTP]),
        RestartedKnft(node, manifests, tmp_path) as restarted,
    ):
        yield restarted
    knft(node, "cleanup")
    flush_conntrack(node)


def _answers(lab: Lab) -> set[str]:
    """Return the servers of one connection in each family."""
    targets = [(address("cluster.50", version), address("outside", version)) for version in VERSIONS]
    return {
        server
        for target, client in targets
        for server in dial_each(lab.host("outside"), target, 80, "tcp", [client]).values()
    }


def _drop_all(lab: Lab) -> None:
    for family in ("ip", "ip6"):
        lab.host("node").namespace.run(["nft", "-f", "-"], stdin=DROP_ALL.format(family=family))


def _wait_for_repairs(restarted: RestartedKnft) -> None:
    """Wait until knft has logged the repair of each family's table, which it does after the sync's own line."""
    wait_until(lambda: restarted.process.log_text().count(LINE) == len(VERSIONS), "the tables are not repaired")


def test_base_chain_that_drops_all_packets_is_removed(lab_with_clients: Lab, restarted: RestartedKnft) -> None:
    _drop_all(lab_with_clients)
    _wait_for_repairs(restarted)
    assert _answers(lab_with_clients) <= set(PODS)


def test_base_chain_that_was_added_while_knft_was_not_running_is_removed(
    lab_with_clients: Lab, restarted: RestartedKnft
) -> None:
    restarted.process.kill()
    _drop_all(lab_with_clients)
    restarted.start()
    _wait_for_repairs(restarted)
    assert _answers(lab_with_clients) <= set(PODS)
