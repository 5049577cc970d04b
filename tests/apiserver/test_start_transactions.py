"""How many transactions a start takes, with those that probe the kernel: each lists all tables of the node first."""

from pathlib import Path

import pytest

from knft.kernel.generation import generation
from knft.kernel.netlink_socket import open_netlink
from tests.support.api_server_knft import ApiServerKnft
from tests.support.fake_api.server import FakeApiServer
from tests.support.lab.namespace import Namespace
from tests.support.nft_library_version import CAN_OWN_TABLES

NETLINK_NETFILTER = 12

pytestmark = pytest.mark.kernel


def test_start_makes_few_transactions(namespace: Namespace, server: FakeApiServer, tmp_path: Path) -> None:
    with namespace.entered():
        netlink = open_netlink(NETLINK_NETFILTER, 10)
    with netlink:
        before = generation(netlink, 1)
        ApiServerKnft(namespace, server, tmp_path).wait_until_programmed()
        # One probes the kernel, one tables with an owner, and one for each family creates the table with everything.
        assert generation(netlink, 2) - before == 3 + CAN_OWN_TABLES
