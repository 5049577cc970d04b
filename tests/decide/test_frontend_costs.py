"""The cost of contested frontends: everybody who may create a Service may claim another Service's external IP."""

import math
from collections.abc import Callable, Iterable

import pytest

from knft.decide.contest import Claim, Contest
from knft.decide.frontends import FrontendClaims
from knft.decide.stale_flows import UdpFrontends, packed_socket
from knft.model.endpoint import Endpoint
from knft.model.plan import Frontend, FrontendKind
from knft.model.service_port import ServicePort
from tests.support.bytecode_steps import count_bytecode_steps
from tests.support.kube_objects import port_name

EXTERNAL = "203.0.113.9"
FEW, MANY = 128, 1024
OWN_NAMES = [port_name(service=f"s{number:05}") for number in range(MANY)]


class CountedText(str):
    """A creation timestamp that counts comparisons of ranks."""

    __slots__ = ()
    comparisons = 0

    def __eq__(self, other: object) -> bool:
        CountedText.comparisons += 1
        return str.__eq__(self, other)

    def __lt__(self, other: str) -> bool:
        CountedText.comparisons += 1
        return str.__lt__(self, other)

    __hash__ = str.__hash__


def _port(number: int) -> ServicePort:
    return ServicePort(f"10.96.{number >> 8}.{number & 255}", 80, "TCP", external_ips=(EXTERNAL,),
                       creation_timestamp=CountedText(f"{number:05}"))  # fmt: skip


def _history(order: Iterable[int]) -> Callable[[], None]:
    """Return a function that claims one frontend for each number in order, reads all owners, and removes all claims."""
    numbers = list(order)

    def work() -> None:
        claims = FrontendClaims()
        for number in numbers:
            claims.claim(OWN_NAMES[number], _port(number))
            claims.owned_by(OWN_NAMES[number])
            claims.take_newly_losing_claims()
        assert claims.losing_count == len(numbers) - 1
        for number in numbers:
            claims.claim(OWN_NAMES[number], None)
            claims.take_newly_losing_claims()
        assert claims.losing_count == 0

    return work


ORDERS: dict[str, Callable[[int], Iterable[int]]] = {
    "the owner first": range,
    "each new claim wins": lambda count: range(count - 1, -1, -1),
    "mixed": lambda count: sorted(range(count), key=lambda number: number * 7919 % count),
}


@pytest.mark.parametrize("order", ORDERS)
def test_contested_frontend_costs_n_log_n_comparisons(order: str) -> None:
    """Quadratic would be 262 000 comparisons for 1 024 claims, and once more for their removal."""
    CountedText.comparisons = 0
    _history(ORDERS[order](MANY))()
    assert CountedText.comparisons < 5 * MANY * math.log2(MANY)


@pytest.mark.parametrize("order", ORDERS)
def test_instructions_for_each_claim_do_not_depend_on_the_number_of_claims(order: str) -> None:
    few, many = (count_bytecode_steps(_history(ORDERS[order](count))) / count for count in (FEW, MANY))
    # Deeper heaps are compared in C; the rest is for Python's part of the property ``owner``.
    assert many < few * 1.2


def test_frontends_of_one_service_port_cost_a_sum() -> None:
    def claim(count: int) -> float:
        ips = tuple(f"203.0.{number >> 8}.{number & 255}" for number in range(count))
        claims = FrontendClaims()
        work = lambda: claims.claim(OWN_NAMES[0], ServicePort("10.96.0.1", 80, "TCP", external_ips=ips))  # noqa: E731
        return count_bytecode_steps(work) / count

    assert claim(MANY) < claim(FEW) * 1.1


def test_claim_that_comes_and_goes_leaves_nothing_behind() -> None:
    """Ranks of removed claims stay in the heap for a while."""
    frontend = Frontend(FrontendKind.EXTERNAL_IP, EXTERNAL, "TCP", 80)
    first, second = (Claim(frontend, name, "") for name in OWN_NAMES[:2])
    contest = Contest((first, second))
    for _ in range(100):
        contest.remove(second.name)
        contest.put(second)
    assert len(contest._heap) <= 2 * len(contest) + 1
    assert contest.owner == first


def _udp_services(count: int) -> UdpFrontends:
    """Return Services that claim one frontend, each with an endpoint of its own."""
    frontends, port = UdpFrontends(), ServicePort("10.96.0.1", 53, "UDP", external_ips=(EXTERNAL,))
    for number, name in enumerate(OWN_NAMES[:count]):
        frontends.update(name._replace(protocol="UDP"), port, [Endpoint.at(f"10.244.{number >> 8}.{number & 255}", 53)])
    return frontends


def test_udp_frontend_is_not_copied_for_each_service() -> None:
    frontends, key = _udp_services(3), packed_socket(EXTERNAL, 53)
    names = [name._replace(protocol="UDP") for name in OWN_NAMES[:3]]
    services = frontends._by_key.names[key]
    assert services == set(names)
    frontends.update(names[0], None, ())
    assert frontends._by_key.names[key] is services
    assert services == set(names[1:])


def test_instructions_for_a_conntrack_entry_do_not_depend_on_the_number_of_claims() -> None:
    def steps(count: int) -> int:
        frontends, key = _udp_services(count), packed_socket(EXTERNAL, 53)
        endpoints = (packed_socket(address, 53) for address in ("10.244.0.0", "198.51.100.1"))
        return count_bytecode_steps(lambda: [frontends.is_stale(key, endpoint, ()) for endpoint in endpoints])

    assert steps(MANY) == steps(FEW)
