"""Compares the packets of an explanation with rules in the kernel."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from knft.explain.frontend_index import FrontendIndex, frontend_text
from knft.explain.query import AddressQuery, Query
from knft.explain.selection import PortOfFamily, selected_ports
from knft.explain.sentences import Sentence, Statement, state
from knft.explain.sources import KernelSource, NodeRules, Source
from knft.explain.words import listed
from knft.families import Family
from knft.model.names import ServicePortName
from knft.model.plan import FrontendKey

_COMMENT_BYTES = 128


def agreement(query: Query, source: Source, kernel: NodeRules) -> tuple[Statement, ...]:
    """Return whether the kernel's rules treat the packets of a query as the source's rules do.

    The packets are those to all frontends of the Service ports that the query names on either side.
    """
    other = KernelSource("", kernel)
    ours, theirs = selected_ports(query, source), selected_ports(query, other)
    expected = dict.fromkeys(family for _, family in ours) or dict.fromkeys(source.indexes)
    if isinstance(query, AddressQuery):
        expected = {query.family: None}
    missing = [
        state(Sentence.KERNEL_NO_TABLE, family=family.value) for family in expected if family not in other.probes
    ]
    compared = [
        each
        for family in source.probes
        if family in other.probes
        for each in _Comparison(family, source, other).of_query(query, (*ours, *theirs))
    ]
    differences = [each.difference for each in compared if each.difference is not None]
    if missing or differences:
        return tuple(dict.fromkeys((*missing, *differences)))
    return (state(Sentence.KERNEL_EQUAL) if compared else state(Sentence.KERNEL_HAS_NONE, what=query.text),)


class _Compared(NamedTuple):
    """A destination that was compared."""

    difference: Statement | None


class _Comparison:
    """Compares one family of a source with the kernel's rules."""

    def __init__(self, family: Family, source: Source, kernel: KernelSource) -> None:
        self._family = family
        self._probes, self._other_probes = source.probes[family], kernel.probes[family]
        self._index, self._other_index = source.indexes[family], kernel.indexes[family]
        accepting = (*source.nodeport_addresses.get(family, ()), *kernel.nodeport_addresses.get(family, ()))
        self._accepting = tuple(dict.fromkeys(accepting))
        """The addresses that accept NodePorts on either side."""

    def of_query(self, query: Query, ports: Iterable[PortOfFamily]) -> Iterator[_Compared]:
        """Yield the frontends of Service ports; without any, the address and the port that the query names."""
        names = [name for name, family in ports if family is self._family]
        for key in self._keys(names):
            yield _Compared(self._difference(key))
        if not names and isinstance(query, AddressQuery) and query.port and query.family is self._family:
            key = (query.address, query.protocol, query.port)
            yield _Compared(self._difference(key))

    def _keys(self, names: Sequence[ServicePortName]) -> Iterable[FrontendKey]:
        """Return the frontends that Service ports own on either side; a comment may cut off the name of a port."""
        wanted = {_comment(name) for name in names}
        services = dict.fromkeys(name.service for name in names)
        return dict.fromkeys(
            key
            for index in (self._index, self._other_index)
            for service in services
            for name in index.ports_of(service)
            if _comment(name) in wanted
            for key in index.owned_by(name)
        )

    def _difference(self, key: FrontendKey) -> Statement | None:
        owner = self._other_index.owners.get(key)
        if owner is not None and key not in self._index.owners:
            return state(Sentence.KERNEL_EXTRA, frontend=frontend_text(key), port=_full_name(owner, self._index))
        places = self._accepting if key[0] is None else (key[0],)
        different = [place for place in places if not self._is_equal(place, key)]
        if not different:
            return None
        where = f" at {listed(different)}" if key[0] is None else ""
        return state(Sentence.KERNEL_DIFFERENT, frontend=f"{frontend_text(key)}{where}")

    def _is_equal(self, address: str, key: FrontendKey) -> bool:
        return self._probes.treats_equally(self._other_probes, address, key[2], key[1])


def _comment(name: ServicePortName) -> tuple[str, str]:
    """Return what the kernel keeps of a name: comments have at most 128 bytes."""
    return (str(name)[:_COMMENT_BYTES], name.protocol)


def _full_name(owner: ServicePortName, index: FrontendIndex) -> ServicePortName:
    """Return the name of a Service port that a comment may have cut off."""
    return next((name for name in index.ports_of(owner.service) if _comment(name) == _comment(owner)), owner)
