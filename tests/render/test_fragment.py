"""The elements and chains of one Service port and of the node (docs/behaviour/nftables.md#service-ports)."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest
from msgspec import structs

from knft.config import Config
from knft.families import Family
from knft.model.endpoint import Endpoint
from knft.model.node import NodeView
from knft.model.plan import CategorizedEndpoints, Frontend, FrontendKind, ServicePlan, TrafficAction
from knft.model.service_port import ServicePort
from knft.nft.codec.statements import statement_text
from knft.nft.expressions import Drop, Goto, Verdict
from knft.nft.objects import Array, ArrayName, Contents, Key
from knft.render.fragment import Fragment, PreviousTable, render_node, render_plan
from knft.render.frontends import traffic_classes
from knft.render.pools import ResetChain, parse_shared_chain, shared_chain
from knft.render.wide import WidePort
from tests.support.kube_objects import port_name

CONFIG = Config("node-1", cluster_cidrs=("10.244.0.0/16",))
CLUSTER, LOCAL, REJECT, DROP = TrafficAction.CLUSTER, TrafficAction.LOCAL, TrafficAction.REJECT, TrafficAction.DROP
NEAR, FAR = Endpoint.at("10.244.0.1", 8080, is_local=True), Endpoint.at("10.244.1.1", 8080)
VIP, NODE_PORT = (
    Frontend(FrontendKind.LOAD_BALANCER_VIP, "203.0.113.1", "TCP", 80),
    Frontend(FrontendKind.NODE_PORT, None, "TCP", 30080),
)
FRONTENDS = (Frontend(FrontendKind.CLUSTER_IP, "10.96.0.1", "TCP", 80), VIP, NODE_PORT)
AT_NEAR, AT_FAR = ("10.244.0.1", 8080), ("10.244.1.1", 8080)
IP, VIP_KEY, PORT = ("10.96.0.1", "tcp", 80), ("203.0.113.1", "tcp", 80), ("tcp", 30080)
HAIRPIN = ("hairpin-connections", ("10.244.0.1", "10.244.0.1", "tcp", 8080))


def _plan(
    internal: TrafficAction,
    external: TrafficAction,
    cluster: tuple[Endpoint, ...] = (NEAR, FAR),
    local: tuple[Endpoint, ...] = (NEAR,),
    **fields: Any,
) -> ServicePlan:
    port = ServicePort("10.96.0.1", 80, "TCP", affinity_seconds=fields.pop("affinity", 0))
    reachable = tuple(dict.fromkeys((*cluster, *local)))
    endpoints = CategorizedEndpoints(cluster, local, reachable, bool(reachable))
    return ServicePlan(port_name(), port, endpoints, FRONTENDS, internal, external, **fields)


def _render(plan: ServicePlan, wide: WidePort | None = None, **previous: Array) -> Fragment:
    arrays = {ArrayName(name.replace("_", "-"), ("10.96.0.1", 80)): array for name, array in previous.items()}
    return render_plan(plan, PreviousTable(arrays), wide, Family.IPV4, CONFIG)


def _verdicts(contents: Contents) -> dict[tuple[str, Key], Verdict]:
    assert {entry.comment for entry in contents.entries.values()} <= {"default/web:http"}
    return {position: entry.verdict for position, entry in contents.entries.items()}


class PlanCase(NamedTuple):
    """A plan with the verdicts, arrays and shared chains that it needs."""

    plan: ServicePlan
    verdicts: Mapping[tuple[str, Key], Verdict]
    arrays: Mapping[tuple[str, Key], Array]
    chains: set[str]


ADDRESSES: tuple[Key, ...] = (("10.96.0.1", 80), ("203.0.113.1", 80))
REJECTED = Goto("reject-chain")
PLANS = {
    "policy Cluster": PlanCase(
        _plan(CLUSTER, CLUSTER),
        {
            ("service-ips", IP): Goto("pool-tcp-2"),
            ("service-ips", VIP_KEY): Goto("external-pool-tcp-2"),
            ("service-nodeports", PORT): Goto("external-nodeport-pool-tcp-2"),
        },
        {
            **{("endpoints-tcp", prefix): (AT_NEAR, AT_FAR) for prefix in ADDRESSES},
            ("nodeport-endpoints-tcp", (30080,)): (AT_NEAR, AT_FAR),
        },
        {"pool-tcp-2", "external-pool-tcp-2", "nodeport-pool-tcp-2", "external-nodeport-pool-tcp-2"},
    ),
    "policy Local": PlanCase(
        _plan(LOCAL, LOCAL),
        {
            ("service-ips", IP): Goto("local-pool-tcp-1"),
            ("service-ips", VIP_KEY): Goto("external-local-pool-tcp-1-of-2"),
            ("service-nodeports", PORT): Goto("external-local-nodeport-pool-tcp-1-of-2"),
        },
        {
            **{("local-endpoints-tcp", prefix): (AT_NEAR,) for prefix in ADDRESSES},
            ("endpoints-tcp", ADDRESSES[1]): (AT_NEAR, AT_FAR),
            ("nodeport-endpoints-tcp", (30080,)): (AT_NEAR, AT_FAR),
            ("local-nodeport-endpoints-tcp", (30080,)): (AT_NEAR,),
        },
        {
            *("local-pool-tcp-1", "external-local-pool-tcp-1-of-2", "pool-tcp-2"),
            *("external-local-nodeport-pool-tcp-1-of-2", "nodeport-pool-tcp-2", "local-nodeport-pool-tcp-1"),
        },
    ),
    "policy Local without local endpoints": PlanCase(
        _plan(DROP, DROP, (FAR,), ()),
        {
            ("no-endpoint-services", IP): Drop(),
            ("no-endpoint-services", VIP_KEY): Drop(),
            ("no-endpoint-nodeports", PORT): Drop(),
            ("service-ips", VIP_KEY): Goto("external-local-pool-tcp-0-of-1"),
            ("service-nodeports", PORT): Goto("external-local-nodeport-pool-tcp-0-of-1"),
        },
        {("endpoints-tcp", ADDRESSES[1]): (AT_FAR,), ("nodeport-endpoints-tcp", (30080,)): (AT_FAR,)},
        {
            *("external-local-pool-tcp-0-of-1", "pool-tcp-1"),
            *("external-local-nodeport-pool-tcp-0-of-1", "nodeport-pool-tcp-1"),
        },
    ),
    "no endpoints": PlanCase(
        _plan(REJECT, REJECT, (), ()),
        {
            ("no-endpoint-services", IP): REJECTED,
            ("no-endpoint-services", VIP_KEY): REJECTED,
            ("no-endpoint-nodeports", PORT): REJECTED,
        },
        {},
        set(),
    ),
}


@pytest.mark.parametrize("case", PLANS.values(), ids=PLANS)
def test_elements_and_shared_chains(case: PlanCase) -> None:
    fragment = _render(case.plan)
    assert _verdicts(fragment.contents) == case.verdicts
    assert {(name.container, name.prefix): array for name, array in fragment.contents.arrays.items()} == case.arrays
    assert {chain.name for chain in fragment.chains} == case.chains
    assert fragment.contents.chains == {}


@pytest.mark.parametrize(
    ("action", "counters", "of_address", "of_node_port"),
    [
        (REJECT, False, "reset-or-reject-chain", "reset-or-reject-chain"),
        (DROP, False, "reset-or-drop", "reset-or-drop"),
        (REJECT, True, "reset-or-rejected-services", "reset-or-rejected-nodeports"),
        (DROP, True, "reset-or-dropped-services", "reset-or-dropped-nodeports"),
    ],
)
def test_service_that_resets_connections_leads_to_a_chain_that_does(
    action: TrafficAction, of_address: str, of_node_port: str, *, counters: bool
) -> None:
    plan = _plan(action, action, (), ())
    plan = structs.replace(plan, port=structs.replace(plan.port, resets_connections=True))
    config = structs.replace(CONFIG, service_counters=counters)
    fragment = render_plan(plan, PreviousTable(), None, Family.IPV4, config)
    verdicts = {key: verdict for (name, key), verdict in _verdicts(fragment.contents).items() if "no-endpoint" in name}
    assert verdicts == {IP: Goto(of_address), VIP_KEY: Goto(of_address), PORT: Goto(of_node_port)}
    resets = [chain for chain in fragment.chains if isinstance(chain, ResetChain)]
    assert {chain.name for chain in resets} == {of_address, of_node_port}
    assert [parse_shared_chain(chain.name) for chain in resets] == resets
    for chain in resets:
        rules = [[*map(statement_text, rule.statements)] for rule in shared_chain(chain, Family.IPV4, config).rules]
        otherwise = "drop" if chain.otherwise == Drop() else f"goto {chain.name.removeprefix('reset-or-')}"
        assert rules == [["tcp flags syn", otherwise], ["reject with tcp reset"]]


def test_service_that_resets_connections_has_the_usual_rules_while_it_has_endpoints() -> None:
    plan = _plan(CLUSTER, CLUSTER)
    resetting = structs.replace(plan, port=structs.replace(plan.port, resets_connections=True))
    assert _render(resetting) == _render(plan)


def test_hairpin_elements_are_those_of_local_endpoints() -> None:
    cluster_ip = ("cluster-ips", ("10.96.0.1",))
    assert _render(_plan(CLUSTER, CLUSTER)).contents.members == {cluster_ip, HAIRPIN}
    assert _render(_plan(CLUSTER, CLUSTER, (FAR,), ())).contents.members == {cluster_ip}


def test_order_of_the_previous_array_is_kept() -> None:
    fragment = _render(_plan(CLUSTER, CLUSTER), endpoints_tcp=(AT_FAR, AT_NEAR))
    arrays = fragment.contents.arrays
    assert arrays[ArrayName("endpoints-tcp", ("10.96.0.1", 80))] == (AT_FAR, AT_NEAR)
    assert arrays[ArrayName("endpoints-tcp", ("203.0.113.1", 80))] == (AT_NEAR, AT_FAR)


def test_source_ranges_restrict_load_balancer_vips_only() -> None:
    contents = _render(_plan(CLUSTER, CLUSTER, allowed_sources=("192.0.2.0/24", "198.51.100.7/32"))).contents
    assert contents.members == {
        ("cluster-ips", ("10.96.0.1",)),
        HAIRPIN,
        ("guarded-frontends", VIP_KEY),
        ("source-ranges", (*VIP_KEY, "192.0.2.0/24")),
        ("source-ranges", (*VIP_KEY, "198.51.100.7")),
    }


def test_wide_source_ranges_are_in_a_chain() -> None:
    wide = WidePort(5, endpoints=False, source_ranges=True)
    contents = _render(_plan(CLUSTER, CLUSTER, allowed_sources=("192.0.2.0/24",)), wide).contents
    assert contents.members == {("cluster-ips", ("10.96.0.1",)), HAIRPIN}
    verdicts = _verdicts(contents)
    assert verdicts["source-range-chains", VIP_KEY] == Goto("wide-5-sources")
    assert verdicts["service-ips", IP] == Goto("pool-tcp-2")
    assert set(contents.chains) == {"wide-5-sources"}


def test_wide_service_port_stores_each_endpoint_once() -> None:
    wide = WidePort(5, endpoints=True, source_ranges=False)
    previous = PreviousTable({ArrayName("wide-endpoints-tcp-5", (5, 0)): (AT_FAR, AT_NEAR)})
    fragment = render_plan(_plan(CLUSTER, LOCAL), previous, wide, Family.IPV4, CONFIG)
    assert _verdicts(fragment.contents) == {
        ("service-ips", IP): Goto("wide-5-cluster"),
        ("service-ips", VIP_KEY): Goto("wide-5-external"),
        ("service-nodeports", PORT): Goto("wide-5-external"),
    }
    assert fragment.contents.arrays == {
        ArrayName("wide-endpoints-tcp-5", (5, 0)): (AT_FAR, AT_NEAR),
        ArrayName("wide-endpoints-tcp-5", (5, 1)): (AT_NEAR,),
    }
    assert set(fragment.contents.chains) == {"wide-5-cluster", "wide-5-local", "wide-5-external"}
    assert fragment.chains == ()


@pytest.mark.parametrize(
    ("action", "of_cluster_ip", "of_others"),
    [
        (CLUSTER, ("cluster",), ("cluster",)),
        (LOCAL, ("local",), ("cluster", "local")),
        (DROP, (), ("cluster",)),
        (REJECT, (), ()),
    ],
)
def test_classes_of_traffic(action: TrafficAction, of_cluster_ip: tuple[str, ...], of_others: tuple[str, ...]) -> None:
    """Pods and the node reach all endpoints at an external frontend, whatever the policy."""
    plan = _plan(action, action)
    found = [traffic_classes(plan, frontend) for frontend in FRONTENDS]
    assert found == [of_cluster_ip, of_others, of_others]


def _node(family: Family = Family.IPV4, pod_cidr: str | None = None) -> NodeView:
    cidrs = ("10.96.0.0/17", "10.96.128.0/17", "10.97.0.1/32") if family is Family.IPV4 else ("fd00:10:96::/112",)
    addresses = frozenset({"192.0.2.11" if family is Family.IPV4 else "2001:db8::11"})
    return NodeView(family, "node-1", nodeport_ips=addresses, service_cidrs=cidrs, pod_cidr=pod_cidr)


NODEPORT_IP = ("nodeport-ips", ("192.0.2.11",))
SERVICE_CIDRS = {("service-cidrs", ("10.96.0.0/16",)), ("service-cidrs", ("10.97.0.1",))}


@pytest.mark.parametrize(
    ("node", "config", "members"),
    [
        pytest.param(
            _node(pod_cidr="10.244.0.0/16"), CONFIG, {NODEPORT_IP, *SERVICE_CIDRS}, id="the rules contain the pod CIDR"
        ),
        pytest.param(
            _node(pod_cidr="10.244.1.0/24"),
            Config("node-1", detect_local_mode="NodeCIDR"),
            {
                NODEPORT_IP,
                *SERVICE_CIDRS,
                ("inside-cidrs", ("10.244.1.0/24",)),
                ("pod-cidrs", ("10.244.1.0/24",)),
            },
            id="pod CIDR of the Node object",
        ),
        pytest.param(
            _node(),
            Config("node-1", detect_local_mode="NodeCIDR"),
            {NODEPORT_IP, *SERVICE_CIDRS, ("inside-cidrs", ("0.0.0.0/0",))},
            id="unknown pod CIDR",
        ),
        pytest.param(
            _node(Family.IPV6),
            CONFIG,
            {
                ("nodeport-ips", ("2001:db8::11",)),
                ("service-cidrs", ("fd00:10:96::/112",)),
                ("inside-cidrs", ("::/0",)),
            },
            id="pod CIDR of the other family only",
        ),
        pytest.param(
            _node(),
            Config("node-1", detect_local_mode="BridgeInterface", pod_interface="cni0"),
            {NODEPORT_IP, *SERVICE_CIDRS},
            id="pods by interface",
        ),
        pytest.param(
            _node(),
            Config("node-1", cluster_cidrs=("10.244.0.0/16",), nodeport_addresses=("all",)),
            SERVICE_CIDRS,
            id="NodePorts on all addresses",
        ),
    ],
)
def test_node_elements(node: NodeView, config: Config, members: set[tuple[str, Key]]) -> None:
    assert render_node(node, config) == Fragment(Contents({}, {}, members))
