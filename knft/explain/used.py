"""Says which Service ports use the endpoints that they list, for the first line of an explanation."""

from collections.abc import Iterator, Sequence

from knft.explain.explanation import EndpointUse, ExplainedPort
from knft.explain.sentences import Sentence, Statement, state
from knft.explain.words import listed


def endpoint_use(ports: Sequence[ExplainedPort]) -> Iterator[Statement]:
    """Yield whether Service ports use the endpoints that they list; nothing if the reasons are unknown."""
    uses = [use for port in ports for use in _uses(port)]
    reasons = dict.fromkeys(use.reason for use in uses)
    if len(reasons) <= 1:
        yield from reasons
    elif len(ports) == 1:
        yield from _use_of_one(uses)
    else:
        yield from _use_of_several(ports)


def _uses(port: ExplainedPort) -> Iterator[EndpointUse]:
    for endpoint in port.endpoints:
        yield from endpoint.uses


def _use_of_one(uses: Sequence[EndpointUse]) -> Iterator[Statement]:
    """Yield which traffic uses an endpoint, or, if all or none does, for which reasons."""
    used = dict.fromkeys(use.traffic for use in uses if use.is_used)
    unused = dict.fromkeys(use.traffic for use in uses if use.traffic not in used)
    if used and unused:
        yield state(Sentence.USED_FOR_SOME, used=listed(used), unused=listed(unused))
    else:
        yield from dict.fromkeys(use.reason for use in uses if use.is_used is bool(used))


def _use_of_several(ports: Sequence[ExplainedPort]) -> Iterator[Statement]:
    """Yield the Service ports whose traffic uses an endpoint, those for which none does, and the rest."""
    all_traffic: list[str] = []
    no_traffic: list[str] = []
    some_traffic: list[str] = []
    for port in ports:
        used = {use.traffic for use in _uses(port) if use.is_used}
        traffic = {use.traffic for use in _uses(port)}
        group = no_traffic if not used else all_traffic if used == traffic else some_traffic
        group.append(port.port)
    if all_traffic and no_traffic:
        yield state(Sentence.USED_BY_SOME, used=listed(all_traffic), unused=listed(no_traffic))
    elif all_traffic:
        yield state(Sentence.USED_BY, ports=listed(all_traffic))
    elif no_traffic:
        yield state(Sentence.UNUSED_BY, ports=listed(no_traffic))
    if some_traffic:
        yield state(Sentence.USED_IN_PART_BY, ports=listed(some_traffic))
