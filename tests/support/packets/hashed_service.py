"""A Service whose clients are hashed, with all kinds of frontends and endpoints on two nodes."""

from typing import Any

from tests.support.lab import plan
from tests.support.packets.many_clients import HTTP, PODS
from tests.support.packets.programmed import endpoints, service, tcp_and_udp, with_load_balancer
from tests.support.scenario import DEFAULT_NODE

SLICE = endpoints("s", *PODS, http=HTTP)
REMOTE_NODE = {
    **DEFAULT_NODE,
    "metadata": {"name": plan.REMOTE.node_name},
    "status": {"addresses": [{"type": "InternalIP", "address": "$remote"}]},
}


def hashed(load_balancing: str, **spec: Any) -> dict[str, Any]:
    """Return a Service with all kinds of frontends, and an annotation unless ``load_balancing`` is empty."""
    ports = tcp_and_udp("http", 80, 30050)
    item = with_load_balancer(service("s", 50, *ports, externalIPs=["$external.5"], **spec), "$external.6")
    annotations = {"knft.dev/load-balancing": load_balancing} if load_balancing else {}
    return {**item, "metadata": {"name": "s", "annotations": annotations}}
