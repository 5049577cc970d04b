"""Wide Service ports: the cost of a Service port is a sum, and its number is unique and stays the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from knft.config import Config
from knft.families import Family
from knft.model.endpoint import Endpoint
from knft.model.names import ServicePortName
from knft.model.plan import CategorizedEndpoints, Frontend, FrontendKind, ServicePlan, TrafficAction
from knft.model.service_port import ServicePort
from knft.nft.codec.statements import statement_text
from knft.nft.expressions import (
    Concat,
    Constant,
    DnatFromMap,
    Drop,
    Match,
    Meta,
    Network,
    Payload,
    RandomNumber,
    Return,
    Rule,
)
from knft.nft.objects import Chain, Contents
from knft.render import wide
from knft.render.fragment import Fragment, PreviousTable, render_plan
from knft.render.wide import WideNumbers, WidePort, read_numbers, wide_chains, wide_number, wide_port
from tests.support.kube_objects import port_name

NUMBER = 333_376_051
"""The number of port_name(), unless it is taken."""

COST_FACTOR = 16
"""Elements and rules for each frontend, endpoint and source range, at most (docs/design/wide-layout.md)."""


def _plan(
    vips: int,
    external_ips: int,
    endpoints: int,
    local: int,
    ranges: int,
    *,
    node_port: bool = False,
    sticky: bool = False,
    internal_local: bool = False,
    external_local: bool = False,
) -> ServicePlan:
    """Return the plan of a Service port with that many frontends of each kind and endpoints."""
    every = tuple(Endpoint.at(f"10.244.{n // 250}.{n % 250 + 1}", 8080, is_local=n < local) for n in range(endpoints))
    on_node = tuple(endpoint for endpoint in every if endpoint.is_local)
    frontends = [
        Frontend(FrontendKind.CLUSTER_IP, "10.96.0.1", "TCP", 80),
        *(Frontend(FrontendKind.LOAD_BALANCER_VIP, f"203.0.113.{n + 1}", "TCP", 80) for n in range(vips)),
        *(Frontend(FrontendKind.EXTERNAL_IP, f"198.51.100.{n + 1}", "TCP", 80) for n in range(external_ips)),
        *((Frontend(FrontendKind.NODE_PORT, None, "TCP", 30080),) if node_port else ()),
    ]
    actions = [
        (TrafficAction.LOCAL if on_node else TrafficAction.DROP) if is_local else TrafficAction.CLUSTER
        for is_local in (internal_local, external_local)
    ]
    internal, external = actions if every else (TrafficAction.REJECT, TrafficAction.REJECT)
    port = ServicePort("10.96.0.1", 80, "TCP", affinity_seconds=60 if sticky else 0)
    allowed = tuple(f"10.{n // 256}.{n % 256}.0/24" for n in range(ranges))
    categorized = CategorizedEndpoints(every, on_node, every, bool(every))
    return ServicePlan(port_name(), port, categorized, tuple(frontends), internal, external, allowed)


def _render(plan: ServicePlan) -> Fragment:
    return render_plan(plan, PreviousTable(), wide_port(plan, WideNumbers({})), Family.IPV4, Config("node-1"))


def _cost(contents: Contents) -> int:
    """Return the number of elements, rules and chains."""
    arrays = sum(len(array) for array in contents.arrays.values())
    chains = sum(1 + len(chain.rules) for chain in contents.chains.values())
    return len(contents.entries) + len(contents.members) + arrays + chains


@pytest.mark.property
@given(
    st.builds(
        _plan,
        st.integers(0, 60),
        st.integers(0, 60),
        st.integers(0, 300),
        st.integers(0, 300),
        st.integers(0, 60),
        node_port=st.booleans(),
        sticky=st.booleans(),
        internal_local=st.booleans(),
        external_local=st.booleans(),
    )
)
def test_cost_is_at_most_proportional_to_frontends_endpoints_and_ranges(plan: ServicePlan) -> None:
    size = len(plan.frontends) + len(plan.endpoints.all_reachable) + len(plan.allowed_sources)
    assert _cost(_render(plan).contents) <= COST_FACTOR * size


def test_cost_of_a_wide_port_is_a_small_part_of_the_product() -> None:
    """One of the 100 ports of a Service with 50 external IPs and 200 endpoints; copies would be 10 200 elements."""
    assert _cost(_render(_plan(0, 50, 200, 0, 0)).contents) < 51 + 200 + 10


def test_affinity_of_a_wide_port_costs_an_id_and_a_rule_for_each_endpoint() -> None:
    """And a few chains with two jumps to each; copies would be 20 400 elements."""
    assert _cost(_render(_plan(0, 50, 200, 0, 0, sticky=True)).contents) < 51 + 3 * 200 + 25


@pytest.mark.parametrize("frontends", [1, 3, 4])
def test_port_with_few_frontends_has_no_chains_of_its_own(frontends: int) -> None:
    assert not _render(_plan(0, frontends - 1, 1000, 0, 0)).contents.chains


def test_every_verdict_leads_to_a_chain_of_the_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """With every combination of policies, affinity and local endpoints."""
    monkeypatch.setattr(wide, "COPIES_FACTOR", 0)
    for internal_local, external_local, sticky, local in [
        (a, b, c, d) for a in (False, True) for b in (False, True) for c in (False, True) for d in (0, 2)
    ]:
        contents = _render(
            _plan(
                3,
                3,
                5,
                local,
                3,
                node_port=True,
                sticky=sticky,
                internal_local=internal_local,
                external_local=external_local,
            )
        ).contents
        chains = contents.chains.keys()
        targets = {entry.verdict.chain for entry in contents.entries.values() if hasattr(entry.verdict, "chain")}
        jumps = {target for chain in contents.chains.values() for target in chain.target_chains()}
        assert targets | jumps <= chains | {"reject-chain"}
        assert {wide_number(name) for name in chains} - {None}


def test_ranges_are_allowed_and_all_other_sources_dropped() -> None:
    """A range of all addresses needs no match; nft refuses one with length 0 in some versions."""
    numbered = WidePort(7, endpoints=False, source_ranges=True)
    ranges = ("192.0.2.0/24", "0.0.0.0/0")
    (chain,) = wide_chains(
        structs.replace(_plan(3, 0, 1, 0, 0), allowed_sources=ranges),
        numbered,
        Family.IPV4,
        Config("node-1"),
    )
    in_range = Match(Payload("ip", "saddr"), Network("192.0.2.0/24"))
    drop = Rule((Drop(),), "load balancer source ranges")
    assert chain == Chain("wide-7-sources", (Rule((in_range, Return())), Rule((Return(),)), drop))


@pytest.mark.parametrize(("endpoints", "moduli"), [(1, [1]), (2, [2, 1]), (5, [5, 1])])
def test_rules_pick_an_endpoint_and_then_the_first(endpoints: int, moduli: list[int]) -> None:
    """The second rule serves a packet whose verdict was looked up before a commit, and its endpoint after it."""
    (chain,) = _wide_chains(_plan(0, 0, endpoints, 0, 0))
    tcp = Match(Meta("l4proto"), "tcp")
    keys = [Concat((Constant(7), Constant(0), RandomNumber(modulus))) for modulus in moduli]
    rules = (Rule((tcp, DnatFromMap("ip", key, "wide-endpoints-tcp-7"))) for key in keys)
    assert chain == Chain("wide-7-cluster", tuple(rules))


def test_external_traffic_needs_a_chain_only_if_a_frontend_is_external() -> None:
    internal, external, local = _plan(0, 0, 2, 1, 0), _plan(1, 0, 2, 1, 0), _plan(1, 0, 2, 1, 0, external_local=True)
    rejected = structs.replace(external, internal=TrafficAction.CLUSTER, external=TrafficAction.REJECT)
    assert _names(internal) == ["wide-7-cluster"]
    assert _names(external) == ["wide-7-cluster", "wide-7-external"]
    assert _names(local) == ["wide-7-cluster", "wide-7-local", "wide-7-external"]
    assert _names(rejected) == ["wide-7-cluster"]
    assert [chain.target_chains() for chain in _wide_chains(local)][-1] == (
        "wide-7-cluster",
        "wide-7-cluster",
        "wide-7-local",
    )
    assert [chain.target_chains() for chain in _wide_chains(external)][-1] == ("wide-7-cluster",)


def test_chains_for_known_clients_come_with_affinity_only() -> None:
    """The policy chain is the same with affinity."""
    sticky, plain = _plan(1, 0, 2, 1, 0, sticky=True, external_local=True), _plan(1, 0, 2, 1, 0, external_local=True)
    assert _names(sticky) == [
        *("wide-7-cluster-known-0", "wide-7-cluster", "wide-7-local-known-0", "wide-7-local", "wide-7-external"),
    ]
    assert _wide_chains(sticky)[-1] == _wide_chains(plain)[-1]


KNOWN = """\
meta l4proto tcp
meta priority set numgen random mod 1 offset 7 . numgen random mod 1 offset 0 . numgen random mod 1 offset {index} \
map @wide-endpoint-ids
{family} saddr . meta priority @affinity-clients
update @affinity-clients {{ {family} saddr . meta priority timeout 60s }}
meta priority set none
dnat {family} to numgen random mod 1 offset 7 . numgen random mod 1 offset 0 . numgen random mod 1 offset {index} \
map @wide-endpoints-tcp-7
"""

PICK = """\
jump wide-7-cluster-known-0

meta priority set numgen random mod 1 offset 7 . numgen random mod 1 offset 0 . numgen random mod 2 \
map @wide-endpoint-ids
update @affinity-clients {{ {family} saddr . meta priority timeout 60s }}

jump wide-7-cluster-known-0

meta priority set none
meta l4proto tcp
dnat {family} to numgen random mod 1 offset 7 . numgen random mod 1 offset 0 . numgen random mod 2 \
map @wide-endpoints-tcp-7

meta l4proto tcp
dnat {family} to numgen random mod 1 offset 7 . numgen random mod 1 offset 0 . numgen random mod 1 \
map @wide-endpoints-tcp-7
"""


@pytest.mark.parametrize("family", list(Family))
def test_rules_with_affinity(family: Family) -> None:
    """A line for each statement, and an empty line after each rule.

    A client for which the set has no room is served as without affinity; its packets have no priority.
    """
    plan = _plan(0, 0, 2, 0, 0, sticky=True)
    known, pick = wide_chains(plan, WidePort(7, endpoints=True, source_ranges=False), family, Config("node-1"))
    assert _text(known) == "\n".join(KNOWN.format(family=family.nft, index=index) for index in (0, 1))
    assert _text(pick) == PICK.format(family=family.nft)


def _text(chain: Chain) -> str:
    return "\n".join("".join(f"{statement_text(each)}\n" for each in rule.statements) for rule in chain.rules)


@pytest.mark.parametrize(("endpoints", "sizes"), [(1, [1]), (64, [64]), (65, [64, 1]), (130, [64, 64, 2])])
def test_each_index_has_a_rule_in_one_block(endpoints: int, sizes: list[int]) -> None:
    """The chains belong to the Service port, so the last block has no rules without endpoints."""
    *known, pick = _wide_chains(_plan(0, 0, endpoints, 0, 0, sticky=True))
    names = [f"wide-7-cluster-known-{64 * number}" for number in range(len(sizes))]
    assert {chain.name: len(chain.rules) for chain in known} == dict(zip(names, sizes, strict=True))
    assert pick.target_chains() == (*names, *names)


def _wide_chains(plan: ServicePlan) -> list[Chain]:
    numbered = WidePort(7, endpoints=True, source_ranges=False)
    return list(wide_chains(plan, numbered, Family.IPV4, Config("node-1")))


def _names(plan: ServicePlan) -> list[str]:
    return [chain.name for chain in _wide_chains(plan)]


@pytest.mark.parametrize(
    ("chain", "number"),
    [
        ("wide-7-cluster", 7),
        ("wide-7-cluster-known-64", 7),
        (f"wide-{wide.NUMBERS - 1}-external", wide.NUMBERS - 1),
        ("wide-7", None),
        ("wide--cluster", None),
        ("wide-12345678901-cluster", None),
        ("sticky-7-cluster", None),
        ("not-wide-7-cluster", None),
        ("wide-7-cluster 2", None),
    ],
)
def test_number_in_the_name_of_a_chain(chain: str, number: int | None) -> None:
    assert wide_number(chain) == number


def test_number_is_the_same_in_a_new_process() -> None:
    """So a restart on an unchanged cluster sends nothing, also of another version of knft."""
    assert WideNumbers({}).assign(port_name()) == NUMBER


def test_numbers_are_read_back_from_a_table() -> None:
    """Two Service ports with the same hash must not exchange their numbers at a restart."""
    first, second = port_name(), port_name(service="api")
    contents = _render(_plan(0, 50, 200, 0, 0)).contents
    (number,) = {wide_number(name) for name in contents.chains}
    assert read_numbers(contents, [first, second]) == {first: number}
    assert read_numbers(Contents.empty(), [first]) == {}


def test_number_that_two_names_have_is_not_read_back() -> None:
    """A comment that was cut may fit two Service ports."""
    contents = _render(_plan(0, 50, 200, 0, 0)).contents
    same = ServicePortName(*port_name()[:3], "TCP")
    other = next(key for key in contents.entries if key[0] == "service-ips")
    entry = contents.entries[other]
    contents.entries["service-ips", ("10.96.0.9", "tcp", 80)] = structs.replace(entry, comment="default/api:http")
    assert read_numbers(contents, [same, port_name(service="api")]) == {}


def test_ports_whose_names_have_the_same_hash_get_different_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wide, "NUMBERS", 8)
    names = [ServicePortName("default", f"web-{n}", "http", "TCP") for n in range(8)]
    numbers = WideNumbers({})
    assert sorted(map(numbers.assign, names)) == list(range(8))


def test_number_that_was_just_released_is_not_assigned_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packets in flight may still be in the chains of the old Service port."""
    monkeypatch.setattr(wide, "NUMBERS", 2)
    old, new = port_name(), ServicePortName("default", "other", "http", "TCP")
    first = WideNumbers({}).assign(old)
    numbers = WideNumbers({old: first})
    numbers.release(old)
    assert numbers.assign(new) != first
    assert numbers.changed == {old: None, new: 1 - first}


def test_numbers_that_were_not_assigned_are_released_unless_preserved() -> None:
    names = [ServicePortName("default", f"web-{n}", "http", "TCP") for n in range(3)]
    numbers = WideNumbers({name: number for number, name in enumerate(names)})
    numbers.assign(names[0])
    numbers.release_unassigned({names[1]})
    assert numbers.changed == {names[0]: 0, names[2]: None}
    numbers.release(ServicePortName("default", "unknown", "http", "TCP"))
    assert len(numbers.changed) == 2


EVEN = 2 * wide.COPIES_FACTOR
"""With as many frontends as endpoints, the number from which copies cost too much."""


@pytest.mark.parametrize(
    ("plan", "is_wide"),
    [
        pytest.param(_plan(0, EVEN - 2, EVEN, 0, 0), False, id="fewer frontends"),
        pytest.param(_plan(0, EVEN - 1, EVEN, 0, 0), False, id="the factor itself"),
        pytest.param(_plan(0, EVEN - 1, EVEN + 1, 0, 0), True, id="more endpoints"),
        pytest.param(_plan(EVEN, 0, 1, 0, EVEN), False, id="ranges: the factor itself"),
        pytest.param(_plan(EVEN, 0, 1, 0, EVEN + 1), True, id="more ranges"),
        pytest.param(_plan(0, 5 * EVEN, 1, 0, 9 * EVEN), False, id="external IPs have no ranges"),
    ],
)
def test_port_is_wide_if_its_copies_are_more_than_the_factor_times_their_sum(
    plan: ServicePlan, *, is_wide: bool
) -> None:
    numbers = WideNumbers({plan.name: 7})
    assert (wide_port(plan, numbers) is not None) == is_wide
    assert numbers.changed == {plan.name: 7 if is_wide else None}


def test_new_ports_get_the_next_free_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wide, "NUMBERS", 5)
    first = WideNumbers({}).assign(port_name())
    taken = {ServicePortName("default", f"web-{n}", "http", "TCP"): (first + n) % 5 for n in range(2)}
    assert WideNumbers(taken).assign(port_name()) == (first + 2) % 5
