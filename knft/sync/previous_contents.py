"""PreviousContents: the contents of Service ports before a sync; they stay if the kernel refuses new ones."""

from collections.abc import Iterable, Iterator

from msgspec import Struct, field

from knft.delta.programmed import ProgrammedContents
from knft.model.names import ServicePortName
from knft.nft.expressions import Goto
from knft.nft.objects import COMMENT_BYTES, Array, ArrayName, Contents, Entry, Key
from knft.protocols import NFT_PROTOCOLS
from knft.render import names
from knft.render.numbering import sticky_hash_id
from knft.render.wide import wide_number
from knft.sync.table_snapshot import Owner, StickyPortRecord

_FRONTENDS = {names.SERVICE_IPS, names.NO_ENDPOINT_SERVICES, names.SOURCE_RANGE_CHAINS}
_NODEPORTS = {names.SERVICE_NODEPORTS, names.NO_ENDPOINT_NODEPORTS}


class PreviousContents(Struct, frozen=True):
    """The contents ``programmed`` before a sync and, if these are unknown, those ``found`` in the kernel."""

    programmed: ProgrammedContents[Owner]
    found: Contents = field(default_factory=Contents.empty)

    def last_known(self, name: ServicePortName) -> Contents:
        """Return the contents that a Service port had.

        After a start, they are those whose comments in the kernel contain its name.
        """
        stored = (self.programmed.get(name), self.programmed.get(StickyPortRecord(sticky_hash_id(name))))
        programmed = [contents for contents in stored if contents is not None]
        return Contents.merged(programmed) if programmed else _contents_by_comment(name, self.found)


def _contents_by_comment(name: ServicePortName, found: Contents) -> Contents:
    """Return the entries whose comments contain a Service port's name, with their endpoints and set members.

    A comment that was cut may match another Service port too, whose contents are then kept for a while as well.
    """
    comment, protocol = str(name)[:COMMENT_BYTES], NFT_PROTOCOLS[name.protocol]
    entries = {
        (container, key): entry
        for (container, key), entry in found.entries.items()
        if container in _FRONTENDS | _NODEPORTS and entry.comment == comment and protocol in key
    }
    frontends = {key for container, key in entries if container in _FRONTENDS}
    prefixes = {tuple(part for part in key if part != protocol) for _, key in entries}
    arrays = {
        array: targets
        for array, targets in found.arrays.items()
        if array.prefix in prefixes and array.container.endswith(f"endpoints-{protocol}")
    }
    named = Contents(entries, arrays, set())
    named.update(_wide_contents(entries.values(), found))
    named.update(_sticky_contents(name, found))
    named.members.update(_members(frontends, named.arrays, protocol, found))
    return named


def _members(
    frontends: set[Key], arrays: dict[ArrayName, Array], protocol: str, found: Contents
) -> Iterator[tuple[str, Key]]:
    """Yield the set elements of these frontends and endpoints."""
    addresses = {frontend[0] for frontend in frontends}
    targets = {target for targets in arrays.values() for target in targets if target is not None}
    for container, key in found.members:
        if (
            (container == names.CLUSTER_IPS and key[0] in addresses)
            or (container == names.SOURCE_RESTRICTED_FRONTENDS and key in frontends)
            or (container == names.SOURCE_RANGES and key[:3] in frontends)
            or (container == names.HAIRPIN and key[2] == protocol and (key[0], key[3]) in targets)
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


def _sticky_contents(name: ServicePortName, found: Contents) -> Contents:
    """Return the record, endpoints and chains of a sticky Service port."""
    contents, prefix = Contents.empty(), f"{sticky_hash_id(name)} "
    for (container, key), entry in found.entries.items():
        if container == names.STICKY_PORTS and entry.comment.startswith(prefix):
            array = ArrayName(names.STICKY_ENDPOINTS, key)
            chains = f"{names.STICKY_PREFIX}{key[0]}-"
            contents.entries[container, key] = entry
            contents.arrays[array] = found.arrays.get(array, ())
            contents.chains.update((chain, rules) for chain, rules in found.chains.items() if chain.startswith(chains))
    return contents
