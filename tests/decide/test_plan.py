"""The plan for one Service port: what its traffic policies do, and who may connect to its load balancer IPs."""

from typing import Any

import pytest

from knft.decide.plan import plan_service_port
from knft.families import Family
from knft.model.node import NodeView
from knft.model.plan import Frontend, FrontendKind, ServicePlan, TrafficAction
from knft.model.service_port import ServicePort
from tests.support.kube_objects import endpoints, port_name

FRONTENDS = (Frontend(FrontendKind.CLUSTER_IP, "10.96.0.1", "TCP", 80),)


def _plan(written: str, node_ip: str | None = "192.0.2.1", **port: Any) -> ServicePlan:
    """Return the plan of a NodePort Service for endpoints in short notation."""
    service_port = ServicePort("10.96.0.1", 80, "TCP", node_port=30080, **port)
    node = NodeView(Family.IPV4, "node-1", "zone-a", node_ip)
    return plan_service_port(port_name(), service_port, endpoints(written), FRONTENDS, node)


@pytest.mark.parametrize(
    ("written", "internal_local", "external_local", "actions"),
    [
        (".3 RL, .4 R", False, False, (TrafficAction.CLUSTER, TrafficAction.CLUSTER)),
        (".3 RL, .4 R", True, False, (TrafficAction.LOCAL, TrafficAction.CLUSTER)),
        (".3 RL, .4 R", False, True, (TrafficAction.CLUSTER, TrafficAction.LOCAL)),
        (".4 R", True, False, (TrafficAction.DROP, TrafficAction.CLUSTER)),
        (".4 R", False, True, (TrafficAction.CLUSTER, TrafficAction.DROP)),
        (".3 L, .4", True, True, (TrafficAction.REJECT, TrafficAction.REJECT)),
        ("", False, False, (TrafficAction.REJECT, TrafficAction.REJECT)),
    ],
)
def test_actions_of_the_two_policies(
    written: str, *, internal_local: bool, external_local: bool, actions: tuple[TrafficAction, TrafficAction]
) -> None:
    plan = _plan(written, internal_policy_local=internal_local, external_policy_local=external_local)
    assert (plan.internal, plan.external) == actions


def test_node_and_zone_of_the_node_select_endpoints() -> None:
    hinted = ".3 a R, .4 b R, .5 a R"
    assert [each.address for each in _plan(hinted).endpoints.cluster] == ["10.0.0.3", "10.0.0.5"]
    named = ".3 a @node-1 R, .4 a @node-2 R"
    assert [each.address for each in _plan(named).endpoints.cluster] == ["10.0.0.3"]


def test_plan_names_the_service_port_and_its_frontends() -> None:
    plan = _plan(".3 R")
    assert (plan.name, plan.port.node_port, plan.frontends) == (port_name(), 30080, FRONTENDS)


@pytest.mark.parametrize(
    ("ranges", "node_ip", "allowed"),
    [
        pytest.param((), "192.0.2.1", (), id="no ranges"),
        pytest.param(("10.0.0.0/8",), "192.0.2.1", ("10.0.0.0/8",), id="without the node"),
        pytest.param(("10.0.0.0/8",), None, ("10.0.0.0/8",), id="unknown node address"),
        pytest.param(("10.0.0.0/9", "10.128.0.0/9"), None, ("10.0.0.0/8",), id="collapsed"),
        pytest.param(
            ("10.0.0.0/8", "192.0.2.0/24"),
            "192.0.2.1",
            ("10.0.0.0/8", "192.0.2.0/24", "203.0.113.1/32"),
            id="a node in the ranges may connect from the VIP",
        ),
    ],
)
def test_sources_allowed_at_a_load_balancer_vip(
    ranges: tuple[str, ...], node_ip: str | None, allowed: tuple[str, ...]
) -> None:
    plan = _plan(".3 R", node_ip, load_balancer_vips=("203.0.113.1",), load_balancer_source_ranges=ranges)
    assert sorted(plan.allowed_sources) == sorted(allowed)
