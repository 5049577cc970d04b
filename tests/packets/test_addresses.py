"""``knft run`` serves NodePorts on addresses that are added to the node, until they are removed."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.families import addresses
from tests.support.knft_command import KNFT, NODE_FLAG, knft, write_manifests
from tests.support.lab import plan
from tests.support.lab.links import netlink
from tests.support.lab.outcomes import Answered, Outcome, Rejected
from tests.support.lab.responders import Responders
from tests.support.lab.topology import Lab
from tests.support.lab.traffic import dial
from tests.support.packets.programmed import endpoints, service
from tests.support.scenario import VERSIONS, Scenario
from tests.support.waiting import TIMEOUT, wait_until

OWN = addresses("external.191")
PORT = 30019

pytestmark = pytest.mark.kernel


@pytest.fixture
def lab_with_knft(lab: Lab, tmp_path: Path) -> Iterator[Lab]:
    port: dict[str, Any] = {"name": "http-tcp", "port": 80, "targetPort": 8080, "nodePort": PORT}
    scenario = Scenario("", [service("shop", 19, port), endpoints("shop", "local-1", http=8080)], ())
    write_manifests(tmp_path, scenario.manifests())
    flags = ["--nodeport-addresses", f"{OWN.ipv4}/32,{OWN.ipv6}/128", "--min-sync-period", "0"]
    node = lab.host("node").namespace
    process = node.popen(
        [*KNFT, "run", "--manifests", str(tmp_path), *NODE_FLAG, *scenario.arguments(), *flags],
        stderr=subprocess.DEVNULL,
    )
    try:
        with Responders() as servers:
            servers.serve(lab.host("local-1"), 8080)
            yield lab
    finally:
        process.kill()
        process.communicate()
        knft(node, "cleanup")


def _dial(lab: Lab, address: str, timeout: float = TIMEOUT) -> Outcome:
    return dial(lab.host("outside"), address, PORT, timeout=timeout)


def _wait_until_served(lab: Lab, version: plan.Version) -> None:
    wait_until(lambda: isinstance(_dial(lab, OWN.of(version), timeout=0.3), Answered), "the NodePort is not served")


def test_node_ports_follow_the_addresses_of_the_node(lab_with_knft: Lab) -> None:
    """An added address serves NodePorts, other addresses do not, and neither does the address after its removal."""
    node = lab_with_knft.host("node").namespace
    with netlink(node) as link:
        link.add_loopback_addresses(OWN)
    for version in VERSIONS:
        _wait_until_served(lab_with_knft, version)
        assert _dial(lab_with_knft, plan.NODE.lan.of(version)) == Rejected("reset")
    with netlink(node) as link:
        link.remove_loopback_addresses(OWN)
    for family in ("ip", "ip6"):
        _wait_until_no_address_serves(lab_with_knft, family)


def _wait_until_no_address_serves(lab: Lab, family: str) -> None:
    """Return when no address accepts NodePorts."""
    command = ["nft", "list", "set", family, "knft", "nodeport-ips"]
    node = lab.host("node").namespace
    wait_until(lambda: "elements" not in node.run(command).stdout, "an address accepts NodePorts")
