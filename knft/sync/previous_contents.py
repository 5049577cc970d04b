"""The contents of Service ports before a sync: they stay if the kernel refuses new ones, or if objects are unknown."""

from collections.abc import Callable, Collection, Iterable, Iterator

from msgspec import Struct, field

from knft.delta.programmed import ProgrammedContents
from knft.model.names import NamespacedName, ServicePortName
from knft.nft.expressions import Goto, Jump
from knft.nft.objects import COMMENT_BYTES, Array, ArrayName, Contents, Entry, Key
from knft.protocols import NFT_PROTOCOLS
from knft.render import names
from knft.render.numbering import sticky_hash_id
from knft.render.wide import wide_number
from knft.sync.table_snapshot import Owner, StickyPortRecord

_FRONTENDS = {names.SERVICE_IPS, names.NO_ENDPOINT_SERVICES, names.SOURCE_RANGE_CHAINS}
_NODEPORTS = {names.SERVICE_NODEPORTS, names.NO_ENDPOINT_NODEPORTS}


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
        stored = (self.programmed.get(name), self.programmed.get(StickyPortRecord(sticky_hash_id(name))))
        programmed = [contents for contents in stored if contents is not None]
        if programmed:
            return Contents.merged(programmed)
        return self.claimed.get(name) or _contents_by_comment(name, self.found)


def _contents_by_comment(name: ServicePortName, found: Contents) -> Contents:
    """Return the entries whose comments contain a Service port's name, with their endpoints and set members.

    A comment that was cut may match another Service port too, whose contents are then kept for a while as well.
    """
    comment, protocol = str(name)[:COMMENT_BYTES], NFT_PROTOCOLS[name.protocol]
    entries = _frontend_entries(lambda key, entry: entry.comment == comment and protocol in key, found)
    prefix = f"{sticky_hash_id(name)} "
    return _with_elements(entries, _sticky_contents(lambda _, entry: entry.comment.startswith(prefix), found), found)


class FoundServices(Struct, frozen=True):
    """The contents of some Services, and the hash IDs of their sticky Service ports."""

    contents: Contents
    hash_ids: frozenset[str]


def find_services(includes: Callable[[NamespacedName], bool], found: Contents) -> FoundServices:
    """Return what was found in the kernel of the Services that ``includes`` names, by the comments of their entries."""
    entries = _frontend_entries(lambda _, entry: _is_of_service(entry.comment, includes), found)
    numbers = {_sticky_number(entry) for entry in entries.values()} - {None}
    sticky = _sticky_contents(lambda key, _: key[0] in numbers, found)
    hash_ids = frozenset(entry.comment.partition(" ")[0] for entry in sticky.entries.values())
    return FoundServices(_with_elements(entries, sticky, found), hash_ids)


def _is_of_service(comment: str, includes: Callable[[NamespacedName], bool]) -> bool:
    service, colon, _ = comment.partition(":")
    namespace, slash, name = service.partition("/")
    was_cut = not colon and len(comment) == COMMENT_BYTES  # Then the name is unknown.
    return bool(slash) and (was_cut or includes(NamespacedName(namespace, name)))


def _sticky_number(entry: Entry) -> int | None:
    """Return the number of the sticky Service port to which an entry leads."""
    chain = entry.verdict.chain if isinstance(entry.verdict, Goto | Jump) else ""
    number = chain.removeprefix(names.STICKY_PREFIX).partition("-")[0] if chain.startswith(names.STICKY_PREFIX) else ""
    return int(number) if number.isdecimal() else None


def _frontend_entries(matches: Callable[[Key, Entry], bool], found: Contents) -> dict[tuple[str, Key], Entry]:
    """Return the entries of Service ports' frontends that match."""
    return {
        (container, key): entry
        for (container, key), entry in found.entries.items()
        if container in _FRONTENDS | _NODEPORTS and matches(key, entry)
    }


def _with_elements(entries: dict[tuple[str, Key], Entry], sticky: Contents, found: Contents) -> Contents:
    """Return entries of frontends with their endpoints, chains and set members."""
    frontends = {key for container, key in entries if container in _FRONTENDS}
    protocols = frozenset(str(key[-2]) for _, key in entries)
    prefixes = {(str(key[-2]), (*key[:-2], key[-1])) for _, key in entries}
    arrays = {
        array: targets
        for array, targets in found.arrays.items()
        if (array.container.rpartition("endpoints-")[2], array.prefix) in prefixes
    }
    named = Contents(dict(entries), arrays, set())
    named.update(_wide_contents(entries.values(), found))
    named.update(sticky)
    named.members.update(_members(frontends, named.arrays, protocols, found))
    return named


def _members(
    frontends: set[Key], arrays: dict[ArrayName, Array], protocols: Collection[str], found: Contents
) -> Iterator[tuple[str, Key]]:
    """Yield the set elements of these frontends and endpoints."""
    addresses = {frontend[0] for frontend in frontends}
    targets = {target for targets in arrays.values() for target in targets if target is not None}
    for container, key in found.members:
        if (
            (container == names.CLUSTER_IPS and key[0] in addresses)
            or (container == names.SOURCE_RESTRICTED_FRONTENDS and key in frontends)
            or (container == names.SOURCE_RANGES and key[:3] in frontends)
            or (container == names.HAIRPIN and key[2] in protocols and (key[0], key[3]) in targets)
        ):
            yield container, key


def _wide_contents(entries: Iterable[Entry], found: Contents) -> Contents:
    """Return the endpoints and chains of the wide Service ports to which these entries lead."""
    verdicts = (entry.verdict for entry in entries)
    chains = (wide_number(verdict.chain) for verdict in verdicts if isinstance(verdict, Goto))
    numbers = {number for number in chains if number is not None}
    contents = Contents.empty()
    if numbers:
        contents.arrays.update(
            (array, targets)
            for array, targets in found.arrays.items()
            if array.container.startswith(names.WIDE_MAP_PREFIX) and array.prefix[0] in numbers
        )
        contents.chains.update((name, chain) for name, chain in found.chains.items() if wide_number(name) in numbers)
    return contents


def _sticky_contents(matches: Callable[[Key, Entry], bool], found: Contents) -> Contents:
    """Return the records, endpoints and chains of the sticky Service ports whose records match."""
    contents = Contents.empty()
    for (container, key), entry in found.entries.items():
        if container == names.STICKY_PORTS and matches(key, entry):
            array = ArrayName(names.STICKY_ENDPOINTS, key)
            chains = f"{names.STICKY_PREFIX}{key[0]}-"
            contents.entries[container, key] = entry
            contents.arrays[array] = found.arrays.get(array, ())
            contents.chains.update((chain, rules) for chain, rules in found.chains.items() if chain.startswith(chains))
    return contents
