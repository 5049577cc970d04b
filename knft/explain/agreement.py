"""Compares the packets of an explanation with rules in the kernel."""

from collections.abc import Iterator

from knft.explain.explanation import ExplainedPort, Explanation
from knft.explain.facts import facts_of_rules, frontend_text
from knft.explain.outcomes import Probes
from knft.explain.query import AddressQuery, Query
from knft.explain.sentences import Sentence, Statement, state
from knft.explain.sources import NodeRules, Source
from knft.families import Family
from knft.model.names import ServicePortName

_COMMENT_BYTES = 128


def agreement(query: Query, found: Explanation, source: Source, kernel: NodeRules) -> tuple[Statement, ...]:
    """Return whether the kernel's rules treat the packets of an explanation as the source's rules do."""
    others = kernel.probes()
    families = dict.fromkeys(Family(port.family) for port in found.ports) or dict.fromkeys(source.probes)
    if isinstance(query, AddressQuery):
        families = {query.family: None}
    missing = [state(Sentence.KERNEL_NO_TABLE, family=family.value) for family in families if family not in others]
    differences = [
        each
        for port in found.ports
        if (family := Family(port.family)) in others
        for each in _differences(port, source.probes[family], others[family])
    ]
    if isinstance(query, AddressQuery) and query.port and not found.ports and query.family in others:
        probes = source.probes[query.family]
        if not probes.agree(others[query.family], query.address, query.port, query.protocol):
            differences.append(state(Sentence.KERNEL_DIFFERENT, frontend=query.text))
    return tuple(dict.fromkeys((*missing, *differences))) or (state(Sentence.KERNEL_EQUAL),)


def _differences(port: ExplainedPort, probes: Probes, other: Probes) -> Iterator[Statement]:
    owned = [frontend for frontend in port.frontends if frontend.is_owned]
    for each in owned:
        if each.at and not probes.agree(other, each.at, each.port, port.protocol):
            yield state(Sentence.KERNEL_DIFFERENT, frontend=each.what)
    known = {frontend.what for frontend in owned}
    for key, name in sorted(facts_of_rules(other.rules).owners.items(), key=lambda item: frontend_text(item[0])):
        if _is_named(port, name) and frontend_text(key) not in known:
            yield state(Sentence.KERNEL_EXTRA, frontend=frontend_text(key), port=port.port)


def _is_named(port: ExplainedPort, name: ServicePortName) -> bool:
    """Tell whether a comment, which the kernel limits to 128 bytes, names a Service port."""
    return (str(name), name.protocol) == (port.port[:_COMMENT_BYTES], port.protocol)
