"""Which endpoints serve a NodePort on a loopback address (docs/behaviour/loopback-nodeports.md#client)."""

from knft.families import Family
from knft.model.endpoint import Endpoint
from knft.model.plan import FrontendKind, ServicePlan

LOOPBACK_ADDRESSES = {Family.IPV4: "127.0.0.1", Family.IPV6: "::1"}
"""Where NodePorts are served, if that is enabled for their family."""


def loopback_nodeport(plan: ServicePlan) -> tuple[int, tuple[Endpoint, ...]] | None:
    """Return the NodePort of a plan and its endpoints; None if it has none that can be served, or no endpoint.

    As in kube-proxy, externalTrafficPolicy Local leaves the endpoints on this node only.
    """
    if plan.port.protocol != "TCP":
        return None
    endpoints = plan.endpoints.local if plan.port.external_policy_local else plan.endpoints.cluster
    number = next((each.port for each in plan.frontends if each.kind is FrontendKind.NODE_PORT), None)
    return (number, endpoints) if number is not None and endpoints else None
