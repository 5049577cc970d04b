"""Past: what Service ports had before a sync, which those that cannot be changed keep."""

from collections.abc import Iterator

from msgspec import Struct, field

from knft.delta.programmed import Programmed
from knft.model.names import ServicePortName
from knft.nft.objects import COMMENT_BYTES, Array, ArrayName, Contents, Key
from knft.protocols import NFT_PROTOCOLS
from knft.render import names
from knft.render.numbering import identity
from knft.sync.basis import Note, Owner

_FRONTENDS = {names.SERVICE_IPS, names.NO_ENDPOINT_SERVICES}
_NODEPORTS = {names.SERVICE_NODEPORTS, names.NO_ENDPOINT_NODEPORTS}


class Past(Struct, frozen=True):
    """What was ``programmed`` before a sync, and what the kernel was ``found`` to hold where that is not known."""

    programmed: Programmed[Owner]
    found: Contents = field(default_factory=Contents.empty)

    def had(self, name: ServicePortName) -> Contents:
        """Return what a Service port had; after a start, what comments in the kernel say is its own."""
        stored = (self.programmed.stored(name), self.programmed.stored(Note(identity(name))))
        known = [contents for contents in stored if contents is not None]
        return Contents.merged(known) if known else _named(name, self.found)


def _named(name: ServicePortName, found: Contents) -> Contents:
    """Return what hangs together with the entries whose comments name a Service port.

    Where the comment is cut, that may be another's as well, which keeps it a while longer.
    """
    comment, protocol = str(name)[:COMMENT_BYTES], NFT_PROTOCOLS[name.protocol]
    of_frontends = _FRONTENDS | _NODEPORTS
    entries = {
        (container, key): entry
        for (container, key), entry in found.entries.items()
        if container in of_frontends and entry.comment == comment and protocol in key
    }
    frontends = {key for container, key in entries if container in _FRONTENDS}
    prefixes = {tuple(part for part in key if part != protocol) for _, key in entries}
    arrays = {
        array: targets
        for array, targets in found.arrays.items()
        if array.prefix in prefixes and array.container.endswith(f"endpoints-{protocol}")
    }
    named = Contents(entries, arrays, set())
    named.update(_sticky(name, found))
    named.members.update(_members(frontends, named.arrays, protocol, found))
    return named


def _members(
    frontends: set[Key], arrays: dict[ArrayName, Array], protocol: str, found: Contents
) -> Iterator[tuple[str, Key]]:
    """Yield the elements of sets that are about these frontends, or about these endpoints."""
    addresses = {frontend[0] for frontend in frontends}
    targets = {target for targets in arrays.values() for target in targets if target is not None}
    for container, key in found.members:
        if (
            (container == names.CLUSTER_IPS and key[0] in addresses)
            or (container == names.GUARDED_FRONTENDS and key in frontends)
            or (container == names.SOURCE_RANGES and key[:3] in frontends)
            or (container == names.HAIRPIN and key[2] == protocol and (key[0], key[3]) in targets)
        ):
            yield container, key


def _sticky(name: ServicePortName, found: Contents) -> Contents:
    """Return a sticky port's note, its endpoints and its chains."""
    contents, beginning = Contents.empty(), f"{identity(name)} "
    for (container, key), entry in found.entries.items():
        if container == names.STICKY_PORTS and entry.comment.startswith(beginning):
            array = ArrayName(names.STICKY_ENDPOINTS, key)
            chains = f"{names.STICKY_PREFIX}{key[0]}-"
            contents.entries[container, key] = entry
            contents.arrays[array] = found.arrays.get(array, ())
            contents.chains.update((chain, rules) for chain, rules in found.chains.items() if chain.startswith(chains))
    return contents
