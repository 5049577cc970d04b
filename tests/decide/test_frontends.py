"""Ownership of contested frontends (docs/behaviour/ownership.md)."""

from collections.abc import Iterable
from random import Random
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from knft.decide.frontends import FrontendClaims, LosingClaim, claimed_frontends
from knft.model.names import NamespacedName, ServicePortName
from knft.model.plan import Frontend, FrontendKey, FrontendKind
from knft.model.service_port import ServicePort
from knft.protocols import Protocol
from tests.support.kube_objects import parametrize_cases, port_name, without_deadline

VIP, SHARED = "192.0.2.1", "203.0.113.9"
OLD, YOUNG = "2024-01-01T00:00:00Z", "2024-01-02T00:00:00Z"
A, B, C = (port_name(service=name) for name in "abc")


def _cluster(address: str, port: int = 80, protocol: Protocol = "TCP") -> Frontend:
    return Frontend(FrontendKind.CLUSTER_IP, address, protocol, port)


def _external(address: str, port: int = 80) -> Frontend:
    return Frontend(FrontendKind.EXTERNAL_IP, address, "TCP", port)


def _vip(address: str, port: int = 80) -> Frontend:
    return Frontend(FrontendKind.LOAD_BALANCER_VIP, address, "TCP", port)


def _node_port(port: int, protocol: Protocol = "TCP") -> Frontend:
    return Frontend(FrontendKind.NODE_PORT, None, protocol, port)


class ClaimsCase(NamedTuple):
    """A Service port, and the frontends that it claims."""

    port: ServicePort
    expected: tuple[Frontend, ...]


CLAIMS = {
    "cluster IP": ClaimsCase(ServicePort("10.96.0.1", 80, "UDP"), (_cluster("10.96.0.1", protocol="UDP"),)),
    "every kind": ClaimsCase(
        ServicePort("10.96.0.1", 80, "TCP", 30080, (SHARED,), (VIP,)),
        (_cluster("10.96.0.1"), _vip(VIP), _external(SHARED), _node_port(30080)),
    ),
    "several of one kind, in order": ClaimsCase(
        ServicePort("10.96.0.1", 80, "TCP", external_ips=("203.0.113.2", "203.0.113.1")),
        (_cluster("10.96.0.1"), _external("203.0.113.2"), _external("203.0.113.1")),
    ),
    "external IP equal to a VIP": ClaimsCase(
        ServicePort("10.96.0.1", 80, "TCP", external_ips=(VIP,), load_balancer_vips=(VIP,)),
        (_cluster("10.96.0.1"), _vip(VIP)),
    ),
    "external IP and VIP equal to the cluster IP": ClaimsCase(
        ServicePort("10.96.0.1", 80, "TCP", external_ips=("10.96.0.1",), load_balancer_vips=("10.96.0.1",)),
        (_cluster("10.96.0.1"),),
    ),
    "duplicate external IP": ClaimsCase(
        ServicePort("10.96.0.1", 80, "TCP", external_ips=(SHARED, SHARED)), (_cluster("10.96.0.1"), _external(SHARED))
    ),
    "NodePort equal to the port": ClaimsCase(
        ServicePort("10.96.0.1", 30080, "TCP", 30080), (_cluster("10.96.0.1", 30080), _node_port(30080))
    ),
}


@parametrize_cases(CLAIMS)
def test_duplicate_claims_keep_the_strongest_kind(case: ClaimsCase) -> None:
    assert case.expected == claimed_frontends(case.port)


class ContestCase(NamedTuple):
    """The ports of A and B, and the owner of the frontend that both claim; None if there is no such frontend."""

    a: ServicePort
    b: ServicePort
    owner: ServicePortName | None


def _claiming(kind: FrontendKind | None = None, *, created: str = OLD, cluster_ip: str = "10.96.0.9") -> ServicePort:
    """Return a port that claims SHARED (or NodePort 30080) as ``kind``, and ``cluster_ip`` unless SHARED is its own."""
    fields: dict[FrontendKind, ServicePort] = {
        FrontendKind.CLUSTER_IP: ServicePort(SHARED, 80, "TCP", creation_timestamp=created),
        FrontendKind.LOAD_BALANCER_VIP: ServicePort(
            cluster_ip, 80, "TCP", 0, (), (SHARED,), creation_timestamp=created
        ),
        FrontendKind.EXTERNAL_IP: ServicePort(cluster_ip, 80, "TCP", 0, (SHARED,), creation_timestamp=created),
        FrontendKind.NODE_PORT: ServicePort(cluster_ip, 80, "TCP", 30080, creation_timestamp=created),
    }
    return ServicePort(cluster_ip, 80, "TCP", creation_timestamp=created) if kind is None else fields[kind]


CLUSTER, VIP_KIND, EXTERNAL, NODE_PORT = FrontendKind
OWN_A, OWN_B = "10.96.0.1", "10.96.0.2"
CONTESTS = {
    "younger cluster IP before VIP": ContestCase(
        _claiming(VIP_KIND, created=OLD), _claiming(CLUSTER, created=YOUNG), B
    ),
    "younger cluster IP before external IP": ContestCase(
        _claiming(EXTERNAL, created=OLD), _claiming(CLUSTER, created=YOUNG), B
    ),
    "younger VIP before external IP": ContestCase(
        _claiming(EXTERNAL, created=OLD, cluster_ip=OWN_A), _claiming(VIP_KIND, created=YOUNG, cluster_ip=OWN_B), B
    ),
    "older external IP before younger": ContestCase(
        _claiming(EXTERNAL, created=YOUNG, cluster_ip=OWN_A), _claiming(EXTERNAL, created=OLD, cluster_ip=OWN_B), B
    ),
    "older NodePort before younger": ContestCase(
        _claiming(NODE_PORT, created=YOUNG, cluster_ip=OWN_A), _claiming(NODE_PORT, created=OLD, cluster_ip=OWN_B), B
    ),
    "same age: lower name first": ContestCase(
        _claiming(EXTERNAL, cluster_ip=OWN_A), _claiming(EXTERNAL, cluster_ip=OWN_B), A
    ),
    "no creation time counts as youngest": ContestCase(
        _claiming(EXTERNAL, created="", cluster_ip=OWN_A), _claiming(EXTERNAL, created=YOUNG, cluster_ip=OWN_B), B
    ),
    "both without creation time: lower name first": ContestCase(
        _claiming(EXTERNAL, created="", cluster_ip=OWN_A), _claiming(EXTERNAL, created="", cluster_ip=OWN_B), A
    ),
    "different ports do not conflict": ContestCase(
        ServicePort(SHARED, 80, "TCP"), ServicePort(SHARED, 81, "TCP"), None
    ),
    "different protocols do not conflict": ContestCase(
        ServicePort(SHARED, 80, "TCP"), ServicePort(SHARED, 80, "UDP"), None
    ),
    "NodePorts of different protocols do not conflict": ContestCase(
        ServicePort(OWN_A, 80, "TCP", 30080), ServicePort(OWN_B, 80, "UDP", 30080), None
    ),
    "NodePort and port with one number do not conflict": ContestCase(
        ServicePort(OWN_A, 80, "TCP", 30080), ServicePort(OWN_B, 30080, "TCP"), None
    ),
}


@parametrize_cases(CONTESTS)
def test_owner_is_chosen_by_kind_then_age_then_name(case: ContestCase) -> None:
    """The other Service port keeps its uncontested frontends; the order of the claims does not matter."""
    ports = {A: case.a, B: case.b}
    claims = {name: claimed_frontends(port) for name, port in ports.items()}
    contested = {frontend.key for frontend in claims[A]} & {frontend.key for frontend in claims[B]}
    assert (case.owner is None) == (not contested)
    expected = {
        name: tuple(frontend for frontend in claims[name] if name == case.owner or frontend.key not in contested)
        for name in ports
    }
    for order in ((A, B), (B, A)):
        frontend_claims = FrontendClaims()
        for name in order:
            frontend_claims.claim(name, ports[name])
        assert expected == {name: frontend_claims.owned_by(name) for name in ports}


def test_losing_claim_gets_the_frontend_of_a_deleted_owner() -> None:
    frontend_claims = FrontendClaims()
    frontend_claims.claim(A, _claiming(EXTERNAL, cluster_ip=OWN_A))
    assert frontend_claims.claim(B, _claiming(CLUSTER)) == {A, B}
    assert (frontend_claims.owned_by(A), frontend_claims.owned_by(B)) == ((_cluster(OWN_A),), (_cluster(SHARED),))
    assert frontend_claims.claim(B, None) == {A, B}
    assert (frontend_claims.owned_by(A), frontend_claims.owned_by(B)) == ((_cluster(OWN_A), _external(SHARED)), ())
    assert frontend_claims.losing_claims() == ()


def test_next_claim_by_rank_gets_the_frontend() -> None:
    frontend_claims = FrontendClaims()
    for name, kind in ((C, EXTERNAL), (B, VIP_KIND), (A, CLUSTER)):
        frontend_claims.claim(name, _claiming(kind, cluster_ip=f"10.96.0.{ord(name.name)}"))
    assert frontend_claims.claim(A, None) == {A, B}
    assert [_external(SHARED) in frontend_claims.owned_by(C), _vip(SHARED) in frontend_claims.owned_by(B)] == [
        False,
        True,
    ]
    assert frontend_claims.claim(B, None) == {B, C}
    assert _external(SHARED) in frontend_claims.owned_by(C)


class AffectedCase(NamedTuple):
    """The ports of A and B, the new port of A, and the names whose frontends change."""

    a: ServicePort | None
    b: ServicePort | None
    new_a: ServicePort | None
    expected: set[ServicePortName]


AFFECTED = {
    "first claim": AffectedCase(None, None, _claiming(), {A}),
    "unchanged claim": AffectedCase(_claiming(), None, _claiming(), set()),
    "no claim before and after": AffectedCase(None, None, None, set()),
    "claim withdrawn": AffectedCase(_claiming(), None, None, {A}),
    "frontend added": AffectedCase(_claiming(), None, _claiming(NODE_PORT), {A}),
    "frontend removed": AffectedCase(_claiming(NODE_PORT), None, _claiming(), {A}),
    "claim withdrawn, the other port has other frontends": AffectedCase(
        _claiming(), _claiming(cluster_ip=OWN_B), None, {A}
    ),
    "new claim loses": AffectedCase(_claiming(), _claiming(CLUSTER), _claiming(EXTERNAL), set()),
    "new claim wins": AffectedCase(None, _claiming(EXTERNAL, cluster_ip=OWN_B), _claiming(CLUSTER), {A, B}),
    "losing claim withdrawn": AffectedCase(_claiming(EXTERNAL), _claiming(CLUSTER), _claiming(), set()),
    "winning claim withdrawn": AffectedCase(
        _claiming(EXTERNAL, cluster_ip=OWN_A), _claiming(EXTERNAL, cluster_ip=OWN_B), None, {A, B}
    ),
    "winning claim gets a weaker kind": AffectedCase(
        _claiming(VIP_KIND, cluster_ip=OWN_A),
        _claiming(VIP_KIND, cluster_ip=OWN_B),
        _claiming(EXTERNAL, cluster_ip=OWN_A),
        {A, B},
    ),
    "losing claim gets a stronger kind": AffectedCase(
        _claiming(EXTERNAL, cluster_ip=OWN_A), _claiming(VIP_KIND, cluster_ip=OWN_B), _claiming(CLUSTER), {A, B}
    ),
    "winning claim gets younger": AffectedCase(
        _claiming(EXTERNAL, cluster_ip=OWN_A),
        _claiming(EXTERNAL, cluster_ip=OWN_B),
        _claiming(EXTERNAL, cluster_ip=OWN_A, created=YOUNG),
        {A, B},
    ),
}


@parametrize_cases(AFFECTED)
def test_claim_returns_service_ports_that_gain_or_lose(case: AffectedCase) -> None:
    frontend_claims = FrontendClaims()
    frontend_claims.claim(A, case.a)
    frontend_claims.claim(B, case.b)
    assert case.expected == frontend_claims.claim(A, case.new_a)


def test_all_winners_of_a_deleted_service_are_returned() -> None:
    """Each gets another of its frontends."""
    frontend_claims = FrontendClaims()
    frontend_claims.claim(A, ServicePort(OWN_A, 80, "TCP", external_ips=(SHARED, VIP), creation_timestamp=OLD))
    for name, address in ((B, SHARED), (C, VIP)):
        frontend_claims.claim(name, ServicePort("", 80, "TCP", external_ips=(address,), creation_timestamp=YOUNG))
    assert {B, C} <= frontend_claims.claim(A, None)


def test_ports_of_one_service_do_not_contest_a_frontend() -> None:
    """Only the first port owns the frontend, but the Service loses nothing to another Service."""
    frontend_claims = FrontendClaims()
    first, second = port_name("a"), port_name("b")
    assert frontend_claims.claim(second, _claiming()) == {second}
    assert frontend_claims.claim(first, _claiming()) == {first, second}
    assert (frontend_claims.owned_by(first), frontend_claims.owned_by(second)) == ((_cluster("10.96.0.9"),), ())
    assert frontend_claims.losing_claims() == ()


def test_uncontested_frontends_have_no_losing_claims() -> None:
    frontend_claims = FrontendClaims()
    frontend_claims.claim(A, _claiming(NODE_PORT, cluster_ip=OWN_A))
    frontend_claims.claim(B, _claiming(EXTERNAL, cluster_ip=OWN_B))
    assert frontend_claims.losing_claims() == ()
    assert frontend_claims.owned_by(C) == ()


def test_losing_claims_are_counted() -> None:
    """The owner's own changes do not count, nor does a claim that is gone."""
    frontend_claims, counts = FrontendClaims(), list[int]()
    claiming = _claiming(NODE_PORT, cluster_ip=OWN_A)
    for name, port in [(A, claiming), (A, _claiming(NODE_PORT, cluster_ip=OWN_B)), (B, claiming), (C, claiming)]:
        frontend_claims.claim(name, port)
        counts.append(frontend_claims.losing_count)
    for name in (A, B, C):
        frontend_claims.claim(name, None)
        counts.append(frontend_claims.losing_count)
    assert counts == [0, 0, 1, 3, 2, 0, 0]


def test_every_losing_claim_names_the_owner() -> None:
    frontend_claims = FrontendClaims()
    frontend_claims.claim(C, _claiming(EXTERNAL, cluster_ip=OWN_A))
    frontend_claims.claim(B, ServicePort(OWN_B, 80, "TCP", 30080, (SHARED,), creation_timestamp=YOUNG))
    frontend_claims.claim(A, ServicePort(SHARED, 80, "TCP", 30080, creation_timestamp=OLD))
    expected = (
        LosingClaim(_external(SHARED), B, A),
        LosingClaim(_node_port(30080), B, A),
        LosingClaim(_external(SHARED), C, A),
    )
    assert expected == frontend_claims.losing_claims()
    frontend_claims.claim(A, None)
    assert (LosingClaim(_external(SHARED), B, C),) == frontend_claims.losing_claims()


_addresses = st.sampled_from([SHARED, VIP, "10.96.0.1", "10.96.0.2"])
_ports = st.builds(
    ServicePort,
    cluster_ip=_addresses,
    port=st.sampled_from([80, 81]),
    protocol=st.sampled_from(["TCP", "UDP"]),
    node_port=st.sampled_from([0, 30080]),
    external_ips=st.lists(_addresses, max_size=2).map(tuple),
    load_balancer_vips=st.lists(_addresses, max_size=2).map(tuple),
    creation_timestamp=st.sampled_from(["", OLD, YOUNG]),
)
_names = st.sampled_from([port_name(port, service=name) for name in "abc" for port in ("x", "y")])
_Owned = dict[ServicePortName, tuple[Frontend, ...]]


def _owners(claims: dict[ServicePortName, ServicePort]) -> _Owned:
    """Return the frontends of each owner, computed from all claims at once."""
    best: dict[tuple[str | None, str, int], tuple[int, bool, str, ServicePortName]] = {}
    for name, port in claims.items():
        for frontend in claimed_frontends(port):
            rank = (int(frontend.kind), not port.creation_timestamp, port.creation_timestamp, name)
            best[frontend.key] = min(best.get(frontend.key, rank), rank)
    return {
        name: tuple(frontend for frontend in claimed_frontends(port) if best[frontend.key][-1] == name)
        for name, port in claims.items()
    }


@without_deadline
@given(st.dictionaries(_names, _ports, min_size=1), st.randoms(use_true_random=False))
def test_any_order_of_claims_gives_the_same_owners(claims: dict[ServicePortName, ServicePort], random: Random) -> None:
    frontend_claims, order = FrontendClaims(), sorted(claims)
    random.shuffle(order)
    for name in order:
        frontend_claims.claim(name, claims[name])
    assert _owners(claims) == {name: frontend_claims.owned_by(name) for name in claims}


@without_deadline
@given(st.lists(st.tuples(_names, st.none() | _ports), max_size=12))
def test_any_history_ends_with_the_owners_of_its_last_claims(
    history: list[tuple[ServicePortName, ServicePort | None]],
) -> None:
    """Each claim also returns exactly the other Service ports whose frontends change."""
    frontend_claims = FrontendClaims()
    claims: dict[ServicePortName, ServicePort] = {}
    for name, port in history:
        before = _owners(claims)
        affected = frontend_claims.claim(name, port)
        claims.pop(name, None)
        claims.update({name: port} if port is not None else {})
        after = _owners(claims)
        differing = {owner for owner in before | after if before.get(owner, ()) != after.get(owner, ())}
        assert differing - {name} == affected - {name}
    assert _owners(claims) == {name: frontend_claims.owned_by(name) for name in claims}


@without_deadline
@given(st.dictionaries(_names, _ports))
def test_claims_to_frontends_of_other_services_lose(claims: dict[ServicePortName, ServicePort]) -> None:
    frontend_claims = FrontendClaims()
    for name, port in claims.items():
        frontend_claims.claim(name, port)
    owners = {frontend.key: name for name, owned in _owners(claims).items() for frontend in owned}
    expected = {
        LosingClaim(frontend, name, owners[frontend.key])
        for name, port in claims.items()
        for frontend in claimed_frontends(port)
        if owners[frontend.key].service != name.service
    }
    losing_claims = frontend_claims.losing_claims()
    assert expected == set(losing_claims)
    assert len(expected) == len(losing_claims)
    assert sorted(claim.loser for claim in losing_claims) == [claim.loser for claim in losing_claims]


def _service_frontends(losing: Iterable[LosingClaim]) -> set[tuple[NamespacedName, FrontendKey]]:
    return {(claim.loser.service, claim.frontend.key) for claim in losing}


@without_deadline
@given(st.lists(st.tuples(_names, st.none() | _ports), max_size=12))
def test_newly_losing_claims_are_returned_once(history: list[tuple[ServicePortName, ServicePort | None]]) -> None:
    """Of several ports of one Service that lose a frontend together, at least one is returned."""
    frontend_claims, before = FrontendClaims(), set[LosingClaim]()
    reported: set[tuple[ServicePortName, FrontendKey]] = set()
    for name, port in history:
        frontend_claims.claim(name, port)
        ended = {(claim.loser, claim.frontend.key) for claim in frontend_claims.take_ended_losing_claims()}
        assert ended <= reported
        reported -= ended
        assert not ended & {(claim.loser, claim.frontend.key) for claim in frontend_claims.losing_claims()}
        now, new = set(frontend_claims.losing_claims()), frontend_claims.take_newly_losing_claims()
        assert frontend_claims.losing_count == len(now)
        assert set(new) <= now
        lost_before = {(claim.loser, claim.frontend.key) for claim in before}
        assert not {(claim.loser, claim.frontend.key) for claim in new} & lost_before
        reported |= {(claim.loser, claim.frontend.key) for claim in new}
        assert _service_frontends(now) - _service_frontends(before) <= _service_frontends(new)
        before = now
    assert frontend_claims.take_newly_losing_claims() == ()
    for name in {name for name, _ in history}:
        frontend_claims.claim(name, None)
    assert {(claim.loser, claim.frontend.key) for claim in frontend_claims.take_ended_losing_claims()} == reported
