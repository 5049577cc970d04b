"""The contents of Service ports before a sync: they stay if the kernel refuses new ones, or if objects are unknown."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from msgspec import Struct, field

from knft.delta.programmed import ProgrammedContents
from knft.model.names import NamespacedName, ServicePortName
from knft.nft.expressions import Goto, Jump
from knft.nft.objects import COMMENT_BYTES, Array, ArrayName, Contents, Entry, Key
from knft.protocols import NFT_PROTOCOLS
from knft.render import names
from knft.sync.table_snapshot import Owner

_FRONTENDS = {names.SERVICE_IPS, names.NO_ENDPOINT_SERVICES, names.SOURCE_RANGE_CHAINS}
_NODEPORTS = {names.SERVICE_NODEPORTS, names.NO_ENDPOINT_NODEPORTS, names.LOCALHOST_REJECTS}


class PreviousContents(Struct, frozen=True):
    """The contents ``programmed`` before a sync and, if these are unknown, those ``found`` in the kernel.

    ``claimed`` has the contents that were found and that a sync has claimed since; ``found`` lacks their entries and
    arrays.
    """

    programmed: ProgrammedContents[Owner]
    found: Contents = field(default_factory=Contents.empty)
    claimed: ProgrammedContents[Owner] = field(default_factory=ProgrammedContents[Owner])

    def last_known(self, name: ServicePortName) -> Contents:
        """Return the contents that a Service port had.

        After a start, they are those whose comments in the kernel contain its name.
        """
        return self.programmed.get(name) or self.claimed.get(name) or _contents_by_comment(name, self.found)


def _contents_by_comment(name: ServicePortName, found: Contents) -> Contents:
    """Return the entries whose comments contain a Service port's name, with their endpoints and set members.

    A comment that was cut may match another Service port too, whose contents are then kept for a while as well.
    """
    comment, protocol = str(name)[:COMMENT_BYTES], NFT_PROTOCOLS[name.protocol]
    entries = _frontend_entries(lambda key, entry: entry.comment == comment and protocol in key, found)
    return _with_elements(entries, found)


def find_services(includes: Callable[[NamespacedName], bool], found: Contents) -> Contents:
    """Return what was found in the kernel of the Services that ``includes`` names, by the comments of their entries."""
    return _with_elements(_frontend_entries(lambda _, entry: _is_of_service(entry.comment, includes), found), found)


def _is_of_service(comment: str, includes: Callable[[NamespacedName], bool]) -> bool:
    service, colon, _ = comment.partition(":")
    namespace, slash, name = service.partition("/")
    was_cut = not colon and len(comment) == COMMENT_BYTES  # Then the name is unknown.
    return bool(slash) and (was_cut or includes(NamespacedName(namespace, name)))


def _frontend_entries(matches: Callable[[Key, Entry], bool], found: Contents) -> dict[tuple[str, Key], Entry]:
    """Return the entries of Service ports' frontends that match."""
    return {
        (container, key): entry
        for (container, key), entry in found.entries.items()
        if container in _FRONTENDS | _NODEPORTS and matches(key, entry)
    }


def _with_elements(entries: dict[tuple[str, Key], Entry], found: Contents) -> Contents:
    """Return entries of frontends with their endpoints, chains and set members."""
    frontends = {key for container, key in entries if container in _FRONTENDS}
    protocols = frozenset(str(key[-2]) for _, key in entries)
    prefixes = {(str(key[-2]), (*key[:-2], key[-1])) for _, key in entries}
    arrays = {
        array: targets
        for array, targets in found.arrays.items()
        if (array.container.rpartition("-")[2], array.prefix) in prefixes
    }
    named = Contents(dict(entries), arrays | _tables(arrays, found), set())
    named.update(_own_contents(entries.values(), found))
    named.members.update(_members(frontends, named.arrays, protocols, found))
    return named


def _tables(arrays: Mapping[ArrayName, Array], found: Contents) -> dict[ArrayName, Array]:
    """Return the tables of hashes of the Service ports whose numbers are among the arrays."""
    numbers = {values[0] for array, values in arrays.items() if array.container.startswith(names.NUMBERS_MAP_PREFIXES)}
    if not numbers:
        return {}
    return {
        array: targets
        for array, targets in found.arrays.items()
        if array.container.startswith(names.HASHED_MAP_PREFIX) and array.prefix[0] in numbers
    }


def _members(
    frontends: set[Key], arrays: dict[ArrayName, Array], protocols: Collection[str], found: Contents
) -> Iterator[tuple[str, Key]]:
    """Yield the set elements of these frontends and endpoints."""
    addresses = {frontend[0] for frontend in frontends}
    targets = {target for values in arrays.values() for target in values}
    for container, key in found.members:
        if (
            (container == names.CLUSTER_IPS and key[0] in addresses)
            or (container == names.SOURCE_RESTRICTED_FRONTENDS and key in frontends)
            or (container == names.SOURCE_RANGES and key[:3] in frontends)
            or (container == names.HAIRPIN and key[2] in protocols and (key[0], key[3]) in targets)
        ):
            yield container, key


def _prefix_of_number(container: str) -> str:
    """Return the prefix of the chains whose numbers are in the keys of a map, an empty string if there are none."""
    if container == names.EARLIER_STICKY_ENDPOINTS:
        return names.EARLIER_STICKY_PREFIX
    return names.WIDE_PREFIX if container.startswith((names.WIDE_MAP_PREFIX, names.WIDE_IDS)) else ""


_OWN_CHAIN = re.compile(rf"({'|'.join(names.OWNED_CHAIN_PREFIXES)})(\d{{1,10}})-")


def _own_contents(entries: Iterable[Entry], found: Contents) -> Contents:
    """Return the chains of the Service ports to which these entries lead, and the endpoints of wide ones."""
    verdicts = (entry.verdict for entry in entries)
    chains = (_OWN_CHAIN.match(verdict.chain) for verdict in verdicts if isinstance(verdict, Goto | Jump))
    numbers = {(chain[1], int(chain[2])) for chain in chains if chain is not None}
    contents = Contents.empty()
    if numbers:
        contents.arrays.update(
            (array, values)
            for array, values in found.arrays.items()
            if (_prefix_of_number(array.container), array.prefix[0]) in numbers
        )
        contents.chains.update(
            (name, chain)
            for name, chain in found.chains.items()
            if (own := _OWN_CHAIN.match(name)) is not None and (own[1], int(own[2])) in numbers
        )
    return contents
