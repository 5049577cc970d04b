"""Says which clients loadBalancerSourceRanges lets connect to an address, for the first line of an explanation."""

from collections.abc import Iterable, Iterator

from knft.explain.explanation import ExplainedPort
from knft.explain.frontend_index import KIND_TEXTS
from knft.explain.sentences import Sentence, Statement, state
from knft.explain.words import listed
from knft.model.plan import FrontendKind


def allowed_clients(address: str, ports: Iterable[ExplainedPort], number: int = 0) -> Iterator[Statement]:
    """Yield the clients of load balancer IPs at an address, and at port ``number`` if one is given.

    Nothing is said about frontends without source ranges, and those at which no client gets a connection.
    """
    frontends: dict[tuple[str, ...], list[str]] = {}
    for port in ports:
        if port.source_ranges and port.conclusion.kind == Sentence.SERVED.kind:
            frontends.setdefault(port.source_ranges, []).extend(_load_balancer_frontends(address, port, number))
    for ranges, found in frontends.items():
        if found:
            yield state(Sentence.SOURCE_RANGES, ranges=listed(ranges), frontends=listed(found))


def _load_balancer_frontends(address: str, port: ExplainedPort, number: int) -> Iterator[str]:
    kind = KIND_TEXTS[FrontendKind.LOAD_BALANCER_VIP]
    for each in port.frontends:
        if each.is_owned and each.kind == kind and each.at == address and number in (0, each.port):
            yield each.what
