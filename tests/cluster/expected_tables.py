"""Compares the node's tables with those that a new process makes from the same objects."""

from collections.abc import Sequence
from pathlib import Path

from tests.cluster.cluster import Cluster
from tests.cluster.desired import KINDS
from tests.support.knft_command import sync_once, write_manifests
from tests.support.lab import plan
from tests.support.lab.links import netlink
from tests.support.lab.namespace import Namespace
from tests.support.packets.table_facts import differences, table_facts


def table_differences(cluster: Cluster, folder: Path, flags: Sequence[str]) -> list[str]:
    """Return the differences between the node's tables and those that ``knft run --once`` makes on such a node."""
    manifests = folder / "fresh"
    manifests.mkdir(exist_ok=True)
    write_manifests(manifests, [item for kind in KINDS for item in cluster.api.list(kind)])
    fresh = Namespace.create("fresh")
    try:
        with netlink(fresh) as link:
            link.up("lo")
            for addresses in (plan.NODE.lan, plan.NODE.gateway):
                link.add_loopback_addresses(addresses)
        sync_once(fresh, manifests, *flags)
        expected, found = table_facts(fresh), table_facts(cluster.namespace)
    finally:
        fresh.close()
    assert found.keys() == expected.keys()
    return [line for family in expected for line in differences(expected[family], found[family])]
