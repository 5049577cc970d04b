"""A kernel that cannot hash, because the module for it is blocked. Only in the virtual machine."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from knft.families import Family
from tests.support.lab import plan
from tests.support.lab.outcomes import Answered
from tests.support.lab.responders import Responders
from tests.support.lab.topology import Lab
from tests.support.lab.traffic import dial
from tests.support.packets.programmed import EVERY, ProgrammedNode, endpoints, service, tcp_and_udp
from tests.support.scenario import VERSIONS, address
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kernel

PLAIN, HASHED = ("cluster.90", 80), ("cluster.50", 80)
POD, PORT = "remote-1", 8080


def hashed(load_balancing: str) -> dict[str, Any]:
    item = service("hashed", 50, *tcp_and_udp("http", 80))
    return {**item, "metadata": {"name": "hashed", "annotations": {"knft.dev/load-balancing": load_balancing}}}


@pytest.fixture
def blocked_module() -> Iterator[Path]:
    """A file that keeps modprobe from loading the module; the test deletes it."""
    assert os.environ.get("KNFT_GUEST"), "this test changes the machine: run it with make test-vm"
    path = Path("/etc/modprobe.d/no-hash.conf")
    path.write_text("install nft_hash /bin/false\n")
    try:
        # The kernel frees the rules of a deleted table later.
        wait_until(lambda: _is_unloaded("nft_hash"), "the module is in use", interval=0.2)
        yield path
    finally:
        path.unlink(missing_ok=True)


def _is_unloaded(module: str) -> bool:
    return subprocess.run(["/sbin/modprobe", "-r", module], check=False).returncode == 0


@pytest.mark.parametrize("load_balancing", ["maglev", "source-hash"])
def test_only_the_hashed_service_is_not_served(lab: Lab, blocked_module: Path, load_balancing: str) -> None:
    """It is quarantined, with the kernel's error, and served at the next retry after the kernel can hash."""
    plain = service("plain", 90, *tcp_and_udp("http", 80))
    slices = (endpoints("plain", POD, http=PORT), endpoints("hashed", POD, http=PORT))
    with Responders() as servers, ProgrammedNode(lab) as node:
        servers.serve(lab.host(POD), PORT, "tcp")
        reports = node.apply([hashed(load_balancing), plain, *slices])
        for family in Family:
            assert {str(name) for name in reports[family].quarantined} == {
                "default/hashed:http-tcp",
                "default/hashed:http-udp",
            }
            assert all("No such file" in reason for reason in reports[family].quarantined.values())
        for version in VERSIONS:
            assert isinstance(_outcome(lab, PLAIN, version), Answered)
            assert not isinstance(_outcome(lab, HASHED, version), Answered)
        blocked_module.unlink()
        node.clock_offset += EVERY
        assert [report.quarantined for report in node.apply([]).values()] == [{}, {}]
        for version in VERSIONS:
            assert isinstance(_outcome(lab, HASHED, version), Answered)


def _outcome(lab: Lab, frontend: tuple[str, int], version: plan.Version) -> object:
    return dial(lab.host("local-3"), address(frontend[0], version), frontend[1], timeout=2.0)
