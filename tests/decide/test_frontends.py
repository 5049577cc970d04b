"""Ownership of contested frontends (docs/behaviour/ownership.md)."""

from random import Random
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from knft.decide.frontends import FrontendClaims, LosingClaim, claimed_frontends
from knft.model.names import ServicePortName
from knft.model.plan import Frontend, FrontendKind
from knft.model.service_port import ServicePort
from knft.protocols import Protocol
from tests.support.kube_objects import parametrize_rows, port_name, steady

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


class Claims(NamedTuple):
    """One Service port, and what it claims."""

    port: ServicePort
    expected: tuple[Frontend, ...]


CLAIMS = {
    "cluster IP": Claims(ServicePort("10.96.0.1", 80, "UDP"), (_cluster("10.96.0.1", protocol="UDP"),)),
    "every kind": Claims(
        ServicePort("10.96.0.1", 80, "TCP", 30080, (SHARED,), (VIP,)),
        (_cluster("10.96.0.1"), _vip(VIP), _external(SHARED), _node_port(30080)),
    ),
    "several of a kind, in their order": Claims(
        ServicePort("10.96.0.1", 80, "TCP", external_ips=("203.0.113.2", "203.0.113.1")),
        (_cluster("10.96.0.1"), _external("203.0.113.2"), _external("203.0.113.1")),
    ),
    "external IP that is its VIP as well": Claims(
        ServicePort("10.96.0.1", 80, "TCP", external_ips=(VIP,), load_balancer_vips=(VIP,)),
        (_cluster("10.96.0.1"), _vip(VIP)),
    ),
    "external IP and VIP that are its cluster IP": Claims(
        ServicePort("10.96.0.1", 80, "TCP", external_ips=("10.96.0.1",), load_balancer_vips=("10.96.0.1",)),
        (_cluster("10.96.0.1"),),
    ),
    "one external IP twice": Claims(
        ServicePort("10.96.0.1", 80, "TCP", external_ips=(SHARED, SHARED)), (_cluster("10.96.0.1"), _external(SHARED))
    ),
    "a NodePort with the number of its port": Claims(
        ServicePort("10.96.0.1", 30080, "TCP", 30080), (_cluster("10.96.0.1", 30080), _node_port(30080))
    ),
}


@parametrize_rows(CLAIMS)
def test_duplicate_claims_keep_the_strongest_kind(row: Claims) -> None:
    assert row.expected == claimed_frontends(row.port)


class Contest(NamedTuple):
    """What a and b ask for, and who gets what both want; None: each gets all that it asks for."""

    a: ServicePort
    b: ServicePort
    winner: ServicePortName | None


def _asking(kind: FrontendKind | None = None, *, created: str = OLD, cluster_ip: str = "10.96.0.9") -> ServicePort:
    """Return a port that claims SHARED as ``kind``, and a cluster IP of its own unless that is the kind."""
    fields: dict[FrontendKind, ServicePort] = {
        FrontendKind.CLUSTER_IP: ServicePort(SHARED, 80, "TCP", creation_timestamp=created),
        FrontendKind.LOAD_BALANCER_VIP: ServicePort(
            cluster_ip, 80, "TCP", 0, (), (SHARED,), creation_timestamp=created
        ),
        FrontendKind.EXTERNAL_IP: ServicePort(cluster_ip, 80, "TCP", 0, (SHARED,), creation_timestamp=created),
        FrontendKind.NODE_PORT: ServicePort(cluster_ip, 80, "TCP", 30080, creation_timestamp=created),
    }
    return ServicePort(cluster_ip, 80, "TCP", creation_timestamp=created) if kind is None else fields[kind]


CLUSTER, BALANCED, EXTERNAL, NODE_PORT = FrontendKind
OWN_A, OWN_B = "10.96.0.1", "10.96.0.2"
CONTESTS = {
    "cluster IP before VIP, whatever the age": Contest(
        _asking(BALANCED, created=OLD), _asking(CLUSTER, created=YOUNG), B
    ),
    "cluster IP before external IP, whatever the age": Contest(
        _asking(EXTERNAL, created=OLD), _asking(CLUSTER, created=YOUNG), B
    ),
    "VIP before external IP, whatever the age": Contest(
        _asking(EXTERNAL, created=OLD, cluster_ip=OWN_A), _asking(BALANCED, created=YOUNG, cluster_ip=OWN_B), B
    ),
    "the older before the younger": Contest(
        _asking(EXTERNAL, created=YOUNG, cluster_ip=OWN_A), _asking(EXTERNAL, created=OLD, cluster_ip=OWN_B), B
    ),
    "the older NodePort before the younger": Contest(
        _asking(NODE_PORT, created=YOUNG, cluster_ip=OWN_A), _asking(NODE_PORT, created=OLD, cluster_ip=OWN_B), B
    ),
    "of one age, the lower name": Contest(_asking(EXTERNAL, cluster_ip=OWN_A), _asking(EXTERNAL, cluster_ip=OWN_B), A),
    "no time of creation counts as youngest": Contest(
        _asking(EXTERNAL, created="", cluster_ip=OWN_A), _asking(EXTERNAL, created=YOUNG, cluster_ip=OWN_B), B
    ),
    "neither has a time of creation, the lower name": Contest(
        _asking(EXTERNAL, created="", cluster_ip=OWN_A), _asking(EXTERNAL, created="", cluster_ip=OWN_B), A
    ),
    "another port is no contest": Contest(ServicePort(SHARED, 80, "TCP"), ServicePort(SHARED, 81, "TCP"), None),
    "another protocol is no contest": Contest(ServicePort(SHARED, 80, "TCP"), ServicePort(SHARED, 80, "UDP"), None),
    "another protocol's NodePort is no contest": Contest(
        ServicePort(OWN_A, 80, "TCP", 30080), ServicePort(OWN_B, 80, "UDP", 30080), None
    ),
    "a NodePort and an address's port of one number are no contest": Contest(
        ServicePort(OWN_A, 80, "TCP", 30080), ServicePort(OWN_B, 30080, "TCP"), None
    ),
}


@parametrize_rows(CONTESTS)
def test_owner_is_chosen_by_kind_then_age_then_name(row: Contest) -> None:
    """The loser keeps what nobody else claims; who came first to the ledger does not matter."""
    asked = {A: row.a, B: row.b}
    claims = {name: claimed_frontends(port) for name, port in asked.items()}
    places = {frontend.key for frontend in claims[A]} & {frontend.key for frontend in claims[B]}
    assert (row.winner is None) == (not places)
    expected = {
        name: tuple(frontend for frontend in claims[name] if name == row.winner or frontend.key not in places)
        for name in asked
    }
    for order in ((A, B), (B, A)):
        ledger = FrontendClaims()
        for name in order:
            ledger.claim(name, asked[name])
        assert expected == {name: ledger.owned_by(name) for name in asked}


def test_losing_claim_gets_the_frontend_of_a_deleted_owner() -> None:
    ledger = FrontendClaims()
    ledger.claim(A, _asking(EXTERNAL, cluster_ip=OWN_A))
    assert ledger.claim(B, _asking(CLUSTER)) == {A, B}
    assert (ledger.owned_by(A), ledger.owned_by(B)) == ((_cluster(OWN_A),), (_cluster(SHARED),))
    assert ledger.claim(B, None) == {A, B}
    assert (ledger.owned_by(A), ledger.owned_by(B)) == ((_cluster(OWN_A), _external(SHARED)), ())
    assert ledger.losing_claims() == ()


def test_next_claim_by_rank_gets_the_frontend() -> None:
    ledger = FrontendClaims()
    for name, kind in ((C, EXTERNAL), (B, BALANCED), (A, CLUSTER)):
        ledger.claim(name, _asking(kind, cluster_ip=f"10.96.0.{ord(name.name)}"))
    assert ledger.claim(A, None) == {A, B}
    assert [_external(SHARED) in ledger.owned_by(C), _vip(SHARED) in ledger.owned_by(B)] == [False, True]
    assert ledger.claim(B, None) == {B, C}
    assert _external(SHARED) in ledger.owned_by(C)


class Affected(NamedTuple):
    """What a and b claim, what a claims instead, and who gains or loses by it."""

    a: ServicePort | None
    b: ServicePort | None
    then: ServicePort | None
    expected: set[ServicePortName]


AFFECTED = {
    "the first claim": Affected(None, None, _asking(), {A}),
    "the same claim once more": Affected(_asking(), None, _asking(), set()),
    "nothing instead of nothing": Affected(None, None, None, set()),
    "the claim withdrawn": Affected(_asking(), None, None, {A}),
    "one frontend more": Affected(_asking(), None, _asking(NODE_PORT), {A}),
    "one frontend less": Affected(_asking(NODE_PORT), None, _asking(), {A}),
    "another's is untouched": Affected(_asking(), _asking(cluster_ip=OWN_B), None, {A}),
    "a claim that is lost": Affected(_asking(), _asking(CLUSTER), _asking(EXTERNAL), set()),
    "a claim that is won": Affected(None, _asking(EXTERNAL, cluster_ip=OWN_B), _asking(CLUSTER), {A, B}),
    "a lost claim withdrawn": Affected(_asking(EXTERNAL), _asking(CLUSTER), _asking(), set()),
    "a won claim withdrawn": Affected(
        _asking(EXTERNAL, cluster_ip=OWN_A), _asking(EXTERNAL, cluster_ip=OWN_B), None, {A, B}
    ),
    "a won claim made weaker": Affected(
        _asking(BALANCED, cluster_ip=OWN_A),
        _asking(BALANCED, cluster_ip=OWN_B),
        _asking(EXTERNAL, cluster_ip=OWN_A),
        {A, B},
    ),
    "a lost claim made stronger": Affected(
        _asking(EXTERNAL, cluster_ip=OWN_A), _asking(BALANCED, cluster_ip=OWN_B), _asking(CLUSTER), {A, B}
    ),
    "a won claim made younger": Affected(
        _asking(EXTERNAL, cluster_ip=OWN_A),
        _asking(EXTERNAL, cluster_ip=OWN_B),
        _asking(EXTERNAL, cluster_ip=OWN_A, created=YOUNG),
        {A, B},
    ),
}


@parametrize_rows(AFFECTED)
def test_claim_returns_service_ports_that_gain_or_lose(row: Affected) -> None:
    ledger = FrontendClaims()
    ledger.claim(A, row.a)
    ledger.claim(B, row.b)
    assert row.expected == ledger.claim(A, row.then)


def test_ports_of_one_service_do_not_contest_a_frontend() -> None:
    """The Service has what it asks for; one of its ports says the same twice."""
    ledger = FrontendClaims()
    first, second = port_name("a"), port_name("b")
    assert ledger.claim(second, _asking()) == {second}
    assert ledger.claim(first, _asking()) == {first, second}
    assert (ledger.owned_by(first), ledger.owned_by(second)) == ((_cluster("10.96.0.9"),), ())
    assert ledger.losing_claims() == ()


def test_uncontested_frontends_have_no_losing_claims() -> None:
    ledger = FrontendClaims()
    ledger.claim(A, _asking(NODE_PORT, cluster_ip=OWN_A))
    ledger.claim(B, _asking(EXTERNAL, cluster_ip=OWN_B))
    assert ledger.losing_claims() == ()
    assert ledger.owned_by(C) == ()


def test_every_losing_claim_names_the_owner() -> None:
    ledger = FrontendClaims()
    ledger.claim(C, _asking(EXTERNAL, cluster_ip=OWN_A))
    ledger.claim(B, ServicePort(OWN_B, 80, "TCP", 30080, (SHARED,), creation_timestamp=YOUNG))
    ledger.claim(A, ServicePort(SHARED, 80, "TCP", 30080, creation_timestamp=OLD))
    expected = (
        LosingClaim(_external(SHARED), B, A),
        LosingClaim(_node_port(30080), B, A),
        LosingClaim(_external(SHARED), C, A),
    )
    assert expected == ledger.losing_claims()
    ledger.claim(A, None)
    assert (LosingClaim(_external(SHARED), B, C),) == ledger.losing_claims()


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
    """Return who owns what, worked out from all claims at once."""
    best: dict[tuple[str | None, str, int], tuple[int, bool, str, ServicePortName]] = {}
    for name, port in claims.items():
        for frontend in claimed_frontends(port):
            rank = (int(frontend.kind), not port.creation_timestamp, port.creation_timestamp, name)
            best[frontend.key] = min(best.get(frontend.key, rank), rank)
    return {
        name: tuple(frontend for frontend in claimed_frontends(port) if best[frontend.key][-1] == name)
        for name, port in claims.items()
    }


@steady
@given(st.dictionaries(_names, _ports, min_size=1), st.randoms(use_true_random=False))
def test_any_order_of_claims_gives_the_same_owners(claims: dict[ServicePortName, ServicePort], random: Random) -> None:
    ledger, order = FrontendClaims(), sorted(claims)
    random.shuffle(order)
    for name in order:
        ledger.claim(name, claims[name])
    assert _owners(claims) == {name: ledger.owned_by(name) for name in claims}


@steady
@given(st.lists(st.tuples(_names, st.none() | _ports), max_size=12))
def test_any_history_ends_with_the_owners_of_its_last_claims(
    history: list[tuple[ServicePortName, ServicePort | None]],
) -> None:
    """And each claim names everybody whose frontends it changes, except for what the claimant already knows."""
    ledger = FrontendClaims()
    claims: dict[ServicePortName, ServicePort] = {}
    for name, port in history:
        before = _owners(claims)
        affected = ledger.claim(name, port)
        claims.pop(name, None)
        claims.update({name: port} if port is not None else {})
        after = _owners(claims)
        differing = {owner for owner in before | after if before.get(owner, ()) != after.get(owner, ())}
        assert differing - {name} == affected - {name}
    assert _owners(claims) == {name: ledger.owned_by(name) for name in claims}


@steady
@given(st.dictionaries(_names, _ports))
def test_claims_to_frontends_of_other_services_lose(claims: dict[ServicePortName, ServicePort]) -> None:
    ledger = FrontendClaims()
    for name, port in claims.items():
        ledger.claim(name, port)
    holders = {frontend.key: name for name, owned in _owners(claims).items() for frontend in owned}
    expected = {
        LosingClaim(frontend, name, holders[frontend.key])
        for name, port in claims.items()
        for frontend in claimed_frontends(port)
        if holders[frontend.key].service != name.service
    }
    found = ledger.losing_claims()
    assert expected == set(found)
    assert len(expected) == len(found)
    assert sorted(loss.loser for loss in found) == [loss.loser for loss in found]
