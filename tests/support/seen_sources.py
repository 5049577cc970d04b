"""The source addresses that the endpoints of a scenario may see: kept, masqueraded or the frontend's."""

from typing import Literal

from tests.support.families import address, in_family
from tests.support.lab import plan
from tests.support.scenario import Packet


def seen_by(
    server: str, source: Literal["kept", "masqueraded", "frontend"], packet: Packet, version: plan.Version
) -> frozenset[str]:
    """Return the source addresses that a server may see."""
    if source == "kept":
        return frozenset({in_family(packet.source_address, version) or address(packet.client, version)})
    if source == "frontend":
        return frozenset({in_family(packet.to, version).rpartition(":")[0]})
    node = plan.NODE
    if server == node.host:  # The kernel chooses which of its addresses the node uses to reach itself.
        return frozenset({node.lan.of(version), node.gateway.of(version)})
    on_node = server.startswith(f"{node.pod_prefix}-")
    return frozenset({(node.gateway if on_node else node.lan).of(version)})
