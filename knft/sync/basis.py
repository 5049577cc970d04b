"""Basis: what a transaction stands on, which is what the last commit left, or what the kernel was found to hold."""

import enum
from collections.abc import Iterable, Mapping

from msgspec import Struct

from knft.delta.programmed import Programmed
from knft.model.names import ServicePortName
from knft.nft.codec.listing import Listing
from knft.nft.objects import Chain
from knft.render.fragment import Fragment
from knft.render.names import STICKY_PORTS, STICKY_PREFIX
from knft.render.sticky import StickyPort, read_sticky_ports


class Part(enum.Enum):
    """Owners of contents that are not Service ports."""

    NODE = "node"
    FOUND = "found"
    """What the kernel held when it was read back; nobody wants it, unless a Service port does."""


Owner = ServicePortName | Part


class TableState(enum.Enum):
    """What has to be done to the table before elements can be."""

    READY = "ready"
    MISSING = "missing"
    OTHER_LAYOUT = "other layout"
    """It was made by a knft with other containers or hooks, and has to be replaced as a whole."""


class Basis(Struct, frozen=True):
    """What is known of the table.

    ``owners`` may have to change; ``sticky`` are the sticky ports by identity; ``outdated`` chains mark rules of an
    older knft and go away.
    """

    programmed: Programmed[Owner]
    table: TableState
    owners: frozenset[Owner]
    sticky: dict[str, StickyPort]
    outdated: tuple[str, ...] = ()
    full: bool = True

    def trust_unchanged(self, wanted: Mapping[Owner, Fragment | None]) -> None:
        """Take the chains of a sticky port for what they should be where the kernel's note about it says so.

        The note holds a digest of the chains: so a restart on an unchanged cluster sends nothing.
        """
        found = self.programmed.stored(Part.FOUND)
        for fragment in wanted.values():
            if found is None or fragment is None or fragment.sticky is None:
                continue
            note = (STICKY_PORTS, (fragment.sticky.number,))
            if found.entries.get(note) == fragment.contents.entries[note]:
                known = {name: chain for name, chain in fragment.contents.chains.items() if name in found.chains}
                found.chains.update(known)


def basis_from_listing(
    listing: Listing | None, markers: tuple[str, str], service_ports: Iterable[ServicePortName], now: float
) -> Basis:
    """Return the basis of a full sync.

    ``markers`` are the names of this knft's layout and rules; ``now`` is in seconds.
    """
    layout, rules = markers
    owners: frozenset[Owner] = frozenset({Part.NODE, Part.FOUND, *service_ports})
    programmed: Programmed[Owner] = Programmed()
    if listing is None:
        return Basis(programmed, TableState.MISSING, owners, {})
    if layout not in listing.chains:
        return Basis(programmed, TableState.OTHER_LAYOUT, owners, {})
    owned = {name: Chain(name) for name in listing.chains if name.startswith(STICKY_PREFIX)}
    listing.contents.chains.update(owned)
    if rules in listing.chains:
        # Otherwise all count as missing, and whichever is needed is written anew, in place.
        programmed.chains.update(listing.chains - owned.keys())
    programmed.containers.update(listing.containers)
    programmed.adopt({Part.FOUND: listing.contents})
    outdated = sorted(name for name in listing.chains if name.startswith("rules-") and name != rules)
    return Basis(programmed, TableState.READY, owners, read_sticky_ports(listing.contents, now), tuple(outdated))
