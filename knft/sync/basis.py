"""Basis: what a transaction stands on, which is what the last commit left, or what the kernel was found to hold."""

import enum
from collections.abc import Iterable

from msgspec import Struct

from knft.delta.programmed import Programmed
from knft.model.names import ServicePortName
from knft.nft.codec.listing import Listing


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
    """``owners`` may have to change; ``outdated`` chains mark rules of an older knft and go away."""

    programmed: Programmed[Owner]
    table: TableState
    owners: frozenset[Owner]
    outdated: tuple[str, ...] = ()
    full: bool = True


def basis_from_listing(
    listing: Listing | None, markers: tuple[str, str], service_ports: Iterable[ServicePortName]
) -> Basis:
    """Return the basis of a full sync; ``markers`` are the names of this knft's layout and rules."""
    layout, rules = markers
    owners: frozenset[Owner] = frozenset({Part.NODE, Part.FOUND, *service_ports})
    programmed: Programmed[Owner] = Programmed()
    if listing is None:
        return Basis(programmed, TableState.MISSING, owners)
    if layout not in listing.chains:
        return Basis(programmed, TableState.OTHER_LAYOUT, owners)
    # Chains with other rules count as missing: whichever is needed is written anew, in place.
    chains = listing.chains if rules in listing.chains else frozenset[str]()
    programmed.adopt({Part.FOUND: listing.contents}, chains)
    outdated = sorted(name for name in listing.chains if name.startswith("rules-") and name != rules)
    return Basis(programmed, TableState.READY, owners, tuple(outdated))
