"""Fragments of sticky Service ports: their shared chains, and the endpoint IDs beside each array of endpoints."""

from collections.abc import Mapping

import pytest
from msgspec import structs

from knft.config import Config
from knft.families import Family
from knft.model.endpoint import Endpoint
from knft.model.plan import CategorizedEndpoints, Frontend, FrontendKind, ServicePlan, TrafficAction
from knft.model.service_port import ServicePort
from knft.nft.expressions import Goto
from knft.nft.objects import Array, ArrayName, Contents, EndpointId, Target
from knft.render.fragment import Fragment, PreviousTable, render_plan
from knft.render.names import endpoint_ids_map
from knft.render.wide import WidePort
from tests.support.kube_objects import port_name

CONFIG = Config("node-1", cluster_cidrs=("10.244.0.0/16",))
CLUSTER, LOCAL, REJECT, DROP = TrafficAction.CLUSTER, TrafficAction.LOCAL, TrafficAction.REJECT, TrafficAction.DROP
FIRST, SECOND, THIRD = (f"10.244.0.{number}" for number in (1, 2, 3))
FRONTENDS = (
    Frontend(FrontendKind.CLUSTER_IP, "10.96.0.1", "TCP", 80),
    Frontend(FrontendKind.EXTERNAL_IP, "203.0.113.1", "TCP", 80),
    Frontend(FrontendKind.NODE_PORT, None, "TCP", 30080),
)
WIDE = WidePort(5, endpoints=True, source_ranges=False)
SERVICE_IP, EXTERNAL_IP, NODE_PORT = (
    ("service-ips", ("10.96.0.1", "tcp", 80)),
    ("service-ips", ("203.0.113.1", "tcp", 80)),
    ("service-nodeports", ("tcp", 30080)),
)


def _plan(
    *reachable: str,
    local: tuple[str, ...] = (),
    internal: TrafficAction = CLUSTER,
    external: TrafficAction = CLUSTER,
    timeout: int = 60,
) -> ServicePlan:
    every = tuple(Endpoint.at(address, 8080, is_local=address in local) for address in reachable)
    on_node = tuple(endpoint for endpoint in every if endpoint.is_local)
    endpoints = CategorizedEndpoints(every, on_node, every, bool(every))
    port = ServicePort("10.96.0.1", 80, "TCP", affinity_seconds=timeout)
    return ServicePlan(port_name(), port, endpoints, FRONTENDS, internal, external)


def _previous(contents: Contents, now: float, wide: WidePort | None = None) -> PreviousTable:
    """Return the table of which ``contents`` are a part."""
    return PreviousTable(contents.arrays, {port_name(): wide.number} if wide is not None else {}, now)


def _render(plan: ServicePlan, previous: PreviousTable | None = None, wide: WidePort | None = None) -> Fragment:
    return render_plan(plan, previous or PreviousTable(), wide, Family.IPV4, CONFIG)


def _pairs(contents: Contents) -> dict[ArrayName, tuple[Array, Array]]:
    """Return each array of endpoints, with that of their IDs."""
    arrays = contents.arrays
    return {
        name: (array, arrays[ArrayName(endpoint_ids_map(name.container), name.prefix)])
        for name, array in arrays.items()
        if "endpoint-ids" not in name.container
    }


def _ids(contents: Contents) -> dict[Target, EndpointId]:
    """Return the ID of each endpoint, which is the same in all arrays."""
    found: dict[Target, set[EndpointId]] = {}
    for targets, ids in _pairs(contents).values():
        assert len(targets) == len(ids)
        for target, number in zip(targets, ids, strict=True):
            assert isinstance(target, tuple)
            assert isinstance(number, int)
            found.setdefault(target, set()).add(number)
    assert {len(numbers) for numbers in found.values()} == {1}
    return {target: numbers.pop() for target, numbers in found.items()}


def _addresses(ids: Mapping[Target, EndpointId]) -> set[str]:
    return {address for address, _ in ids}


def test_frontends_share_the_chains_of_their_timeout() -> None:
    fragment = _render(_plan(FIRST, SECOND, local=(FIRST,), external=LOCAL))
    verdicts = {position: entry.verdict for position, entry in fragment.contents.entries.items()}
    assert verdicts == {
        SERVICE_IP: Goto("affinity-60-pool-tcp-2"),
        EXTERNAL_IP: Goto("external-affinity-60-local-pool-tcp-1-of-2"),
        NODE_PORT: Goto("external-affinity-60-local-nodeport-pool-tcp-1-of-2"),
    }
    assert {chain.name for chain in fragment.chains} == {
        *("affinity-60-pool-tcp-2", "affinity-60-known-tcp-0", "pool-tcp-2"),
        *("external-affinity-60-local-pool-tcp-1-of-2", "external-affinity-60-local-nodeport-pool-tcp-1-of-2"),
        *("affinity-60-local-pool-tcp-1", "affinity-60-local-known-tcp-0", "local-pool-tcp-1"),
        *("affinity-60-nodeport-pool-tcp-2", "affinity-60-nodeport-known-tcp-0", "nodeport-pool-tcp-2"),
        "affinity-60-local-nodeport-pool-tcp-1",
        *("affinity-60-local-nodeport-known-tcp-0", "local-nodeport-pool-tcp-1"),
    }
    assert fragment.contents.chains == {}, "no chain belongs to a Service port"


@pytest.mark.parametrize(
    ("internal", "verdict"), [(CLUSTER, "affinity-60-pool-tcp-2"), (LOCAL, "affinity-60-local-pool-tcp-1")]
)
def test_cluster_ip_applies_the_internal_policy(internal: TrafficAction, verdict: str) -> None:
    fragment = _render(_plan(FIRST, SECOND, local=(FIRST,), internal=internal))
    assert fragment.contents.entries[SERVICE_IP].verdict == Goto(verdict)
    assert fragment.contents.entries[EXTERNAL_IP].verdict == Goto("external-affinity-60-pool-tcp-2")


def test_policy_local_without_local_endpoints_serves_pods_and_the_node() -> None:
    fragment = _render(_plan(FIRST, internal=DROP, external=DROP))
    assert SERVICE_IP not in fragment.contents.entries
    assert fragment.contents.entries[EXTERNAL_IP].verdict == Goto("external-affinity-60-local-pool-tcp-0-of-1")
    assert not {chain.name for chain in fragment.chains} & {"affinity-60-local-pool-tcp-0", "local-pool-tcp-0"}
    assert set(_pairs(fragment.contents)) == {
        ArrayName("endpoints-tcp", ("203.0.113.1", 80)),
        ArrayName("nodeport-endpoints-tcp", (30080,)),
    }


def test_service_port_without_endpoints_has_no_arrays() -> None:
    assert not _render(_plan(internal=REJECT, external=REJECT)).contents.arrays


@pytest.mark.parametrize("wide", [None, WIDE], ids=["narrow", "wide"])
def test_endpoint_has_one_id_in_all_arrays(wide: WidePort | None) -> None:
    contents = _render(_plan(FIRST, SECOND, THIRD, local=(SECOND,), external=LOCAL), wide=wide).contents
    ids = _ids(contents)
    assert _addresses(ids) == {FIRST, SECOND, THIRD}
    assert len(set(ids.values())) == 3
    assert len(_pairs(contents)) == (5 if wide is None else 2)


def test_service_port_without_affinity_has_no_ids() -> None:
    contents = _render(_plan(FIRST, SECOND, timeout=0)).contents
    assert not [name for name in contents.arrays if "endpoint-ids" in name.container]


def test_ids_follow_the_order_of_the_previous_array() -> None:
    before = _render(_plan(FIRST, SECOND, THIRD)).contents
    after = _render(_plan(SECOND, THIRD), _previous(before, 1.0)).contents
    (targets, ids), *_ = _pairs(after).values()
    assert targets == ((THIRD, 8080), (SECOND, 8080))
    assert ids == tuple(_ids(before)[address, 8080] for address in (THIRD, SECOND))


def test_unchanged_service_port_is_rendered_the_same_at_another_time() -> None:
    for wide in (None, WIDE):
        first = _render(_plan(FIRST, SECOND), wide=wide)
        assert _render(_plan(FIRST, SECOND), _previous(first.contents, 7.0, wide), wide) == first


def test_returning_endpoint_gets_another_id() -> None:
    """Its clients had to be sent to other endpoints."""
    first = _render(_plan(FIRST, SECOND), PreviousTable(now=1.0)).contents
    without = _render(_plan(FIRST), _previous(first, 2.0)).contents
    again = _render(_plan(FIRST, SECOND), _previous(without, 3.0)).contents
    assert _ids(again)[FIRST, 8080] == _ids(first)[FIRST, 8080]
    assert _ids(again)[SECOND, 8080] != _ids(first)[SECOND, 8080]


def test_service_port_that_becomes_wide_or_narrow_keeps_the_ids() -> None:
    """So clients keep their endpoints when a frontend is added."""
    narrow = _render(_plan(FIRST, SECOND, local=(FIRST,), external=LOCAL)).contents
    wide = _render(_plan(FIRST, SECOND, local=(FIRST,), external=LOCAL), _previous(narrow, 1.0), WIDE).contents
    again = _render(_plan(FIRST, SECOND, local=(FIRST,), external=LOCAL), _previous(wide, 2.0, WIDE)).contents
    assert _ids(narrow) == _ids(wide) == _ids(again)


@pytest.mark.parametrize(("before", "after"), [(CLUSTER, LOCAL), (LOCAL, CLUSTER)])
def test_service_port_keeps_the_ids_when_its_policy_changes(before: TrafficAction, after: TrafficAction) -> None:
    """A cluster IP has either cluster endpoints or local ones; clients of the latter keep their endpoints."""
    plans = [
        structs.replace(_plan(FIRST, SECOND, local=(FIRST,), internal=internal), frontends=FRONTENDS[:1])
        for internal in (before, after)
    ]
    first = _render(plans[0]).contents
    second = _render(plans[1], _previous(first, 1.0)).contents
    assert _ids(first)[FIRST, 8080] == _ids(second)[FIRST, 8080]


def test_new_frontend_uses_the_ids_of_the_others() -> None:
    """The previous array of one frontend is enough."""
    before = _render(_plan(FIRST, SECOND)).contents
    one = Contents.empty()
    name = ArrayName("nodeport-endpoints-tcp", (30080,))
    ids_name = ArrayName("nodeport-endpoint-ids-tcp", (30080,))
    one.arrays = {name: before.arrays[name], ids_name: before.arrays[ids_name]}
    assert _ids(_render(_plan(FIRST, SECOND), _previous(one, 1.0)).contents) == _ids(before)


def test_endpoint_that_is_only_local_has_an_id() -> None:
    """A terminating endpoint may serve policy Local only."""
    plan = _plan(FIRST, SECOND, local=(SECOND,), internal=LOCAL, external=LOCAL)
    first, second = plan.endpoints.all_reachable
    endpoints = CategorizedEndpoints((first,), (second,), (first, second), has_any_endpoints=True)
    only_local = ServicePlan(plan.name, plan.port, endpoints, plan.frontends, plan.internal, plan.external)
    assert _addresses(_ids(_render(only_local).contents)) == {FIRST, SECOND}


def test_wide_service_port_has_chains_of_its_own_for_known_clients() -> None:
    fragment = _render(_plan(FIRST, SECOND, local=(SECOND,), external=LOCAL), wide=WIDE)
    assert fragment.chains == ()
    assert set(fragment.contents.chains) == {
        *("wide-5-cluster", "wide-5-cluster-known-0", "wide-5-local", "wide-5-local-known-0", "wide-5-external"),
    }
    assert set(_pairs(fragment.contents)) == {
        ArrayName("wide-endpoints-tcp-5", (5, 0)),
        ArrayName("wide-endpoints-tcp-5", (5, 1)),
    }
    assert ArrayName("wide-endpoint-ids", (5, 0)) in fragment.contents.arrays


@pytest.mark.parametrize("endpoints", [64, 65])
def test_wide_service_port_has_blocks_of_64_indexes(endpoints: int) -> None:
    reachable = [f"10.244.1.{number}" for number in range(1, endpoints + 1)]
    chains = _render(_plan(*reachable), wide=WIDE).contents.chains
    sizes = {name: len(chain.rules) for name, chain in chains.items() if "-known-" in name}
    assert sizes == {f"wide-5-cluster-known-{start}": min(endpoints - start, 64) for start in range(0, endpoints, 64)}
    jumps = [target for target in chains["wide-5-cluster"].target_chains() if "-known-" in target]
    assert jumps == [*sizes, *sizes], "before and after a new client is remembered"
