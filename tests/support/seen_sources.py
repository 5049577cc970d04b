"""Which source addresses the endpoints of a scenario may see, for what it says of them: kept, masqueraded, frontend."""

from typing import Literal

from tests.support.families import address, in_family
from tests.support.lab import plan
from tests.support.scenario import Packet


def seen_by(
    server: str, said: Literal["kept", "masqueraded", "frontend"], packet: Packet, version: plan.Version
) -> frozenset[str]:
    """Return the source addresses that a server may see."""
    if said == "kept":
        return frozenset({in_family(packet.source_address, version) or address(packet.client, version)})
    if said == "frontend":
        return frozenset({in_family(packet.to, version).rpartition(":")[0]})
    node = plan.NODE
    if server == node.host:  # Which of its addresses the node takes towards itself is the kernel's business.
        return frozenset({node.lan.of(version), node.gateway.of(version)})
    on_node = server.startswith(f"{node.pod_prefix}-")
    return frozenset({(node.gateway if on_node else node.lan).of(version)})
