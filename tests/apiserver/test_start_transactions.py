"""How many transactions a start takes, with those that probe the kernel, and how many requests to libnftables.

Before each transaction, libnftables lists all tables of the node. Requests that list a table, or that the kernel
refuses, are no transactions, but cost CPU time too. What knft reads without libnftables is not counted.
"""

import re
from collections import Counter
from pathlib import Path

import pytest

from knft.kernel.generation import generation
from knft.kernel.netlink_socket import open_netlink
from tests.support import logged_requests
from tests.support.api_server_knft import ApiServerKnft
from tests.support.fake_api.server import FakeApiServer
from tests.support.lab.namespace import Namespace
from tests.support.nft_library_version import CAN_OWN_TABLES

NETLINK_NETFILTER = 12
REQUESTS = {
    "table ip knft-probe": 2,  # expressions, and tables with an owner
    "list table ip knft": 2,  # to check the settings of the node, and for the first sync
    "list table ip6 knft": 1,
    "table ip knft": 1,
    "table ip6 knft": 1,
}
"""The requests by the table that they create or list."""

pytestmark = pytest.mark.kernel


def _subject(request: str) -> str:
    """Return the table that a request creates or lists, or else the request."""
    found = re.match(r"list ruleset arp\n(list table \w+ [\w-]+)$|(table \w+ [\w-]+) \{\n", request)
    return found[1] or found[2] if found else request


def test_start_makes_few_transactions(namespace: Namespace, server: FakeApiServer, tmp_path: Path) -> None:
    file = tmp_path / "requests"
    with namespace.entered():
        netlink = open_netlink(NETLINK_NETFILTER, 10)
    with netlink:
        before = generation(netlink, 1)
        ApiServerKnft(namespace, server, tmp_path, command=logged_requests.command(file)).wait_until_programmed()
        # One probes the kernel, one tables with an owner, and one for each family creates the table with everything.
        assert generation(netlink, 2) - before == 3 + CAN_OWN_TABLES
    assert Counter(map(_subject, logged_requests.read(file))) == REQUESTS
