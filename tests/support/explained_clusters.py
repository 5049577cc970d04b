"""Random clusters and configurations for ``knft explain``."""

from typing import Any

from hypothesis import strategies as st

from knft.config import Config
from tests.support.cluster_strategies import NAMES, endpoint_slices, nodes, services

CONFIGS = (
    Config("node-1", cluster_cidrs=("10.244.0.0/16", "fd00:10:244::/48"), service_cidrs=("10.96.0.0/16",)),
    Config("node-1", detect_local_mode="BridgeInterface", pod_interface="cni0"),
    Config("node-1", detect_local_mode="InterfaceNamePrefix", pod_interface="veth*", masquerade_all=True),
    Config("node-1", nodeport_addresses=("all",)),
)
OWN = ("192.0.2.11", "2001:db8:1::11")


@st.composite
def clusters(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Return up to three Services with up to four slices, and the node."""
    listed = [draw(services(name)) for name in draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True))]
    slices = [draw(endpoint_slices(f"slice-{number}")) for number in range(draw(st.integers(0, 4)))]
    return [draw(nodes()), *listed, *slices]
