"""Sets of a newer libnftables, of which an older one dies whichever table they are in: found by netlink.

A set's user data say how its key was written. Version 1.1.3 writes that for plain types too, as an expression that
1.0.6 follows nowhere; and most commands have the library read the sets of all tables.
"""

import struct
from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from knft.errors import KernelError, LibraryDiedError, UnavailableError
from knft.kernel.tables import FAMILIES

_PLAIN_TYPE = 4
"""Which kind of expression a plain type is, as user data number them; 1.0.6 knows others alone."""
_CONCATENATION = 13
_TYPES = ("NFTNL_UDATA_SET_KEY_TYPEOF", "NFTNL_UDATA_SET_DATA_TYPEOF")
_KIND = struct.Struct("=BBI")
"""The beginning of an expression in user data: attribute 0, its length 4, and the kind of expression."""
_PARTS = _KIND.size + 2 + 2
"""Where the first part of a concatenation is: its kind stands behind that of the whole, and two headers."""


class NamedSet(Struct, frozen=True):
    """A set or map, and whether a newer libnftables made it."""

    family: str
    table: str
    name: str
    newer: bool


def named_sets() -> list[NamedSet]:
    """Return every set and map of every table; raise KernelError where that is refused."""
    from pyroute2.netlink.exceptions import (  # type: ignore[import-untyped]  # noqa: PLC0415 - heavy
        NetlinkError,
    )
    from pyroute2.nftables.main import NFTables  # type: ignore[import-untyped]  # noqa: PLC0415

    try:
        with NFTables(nfgen_family=0) as netlink:
            return [_named_set(message) for message in netlink.get_sets()]
    except (NetlinkError, OSError) as error:
        msg = f"the names of nftables' sets cannot be read: {error}"
        raise KernelError(msg) from error


def explained(error: LibraryDiedError) -> UnavailableError:
    """Return what to say where the library dies of a harmless command."""
    return UnavailableError(f"libnftables dies of whatever it is asked here ({error}){_cause()}")


def _cause() -> str:
    try:
        newer = [each for each in named_sets() if each.newer]
    except KernelError:
        newer = []
    if not newer:
        return "; no set that a newer nftables made was found: please report this"
    return (
        f": a newer nftables has made sets that this library cannot read, in {_places(newer)}; give knft "
        "libnftables 1.1 or newer, or delete these sets with the nft that made them"
    )


def _places(sets: Iterable[NamedSet]) -> str:
    tables: dict[str, list[str]] = {}
    for each in sets:
        tables.setdefault(f"{each.family} {each.table}", []).append(each.name)
    return ", ".join(f"{table} ({', '.join(sorted(names))})" for table, names in sorted(tables.items()))


def _named_set(message: Any) -> NamedSet:  # noqa: ANN401 - pyroute2 has no types
    family = message["nfgen_family"]
    data = dict(message.get_attr("NFTA_SET_USERDATA") or ())
    newer = any(_is_newer(data[key]) for key in _TYPES if key in data)
    return NamedSet(
        FAMILIES.get(family, str(family)), message.get_attr("NFTA_SET_TABLE"), message.get_attr("NFTA_SET_NAME"), newer
    )


def _is_newer(expression: bytes) -> bool:
    kind = _kind(expression, 0)
    return kind == _PLAIN_TYPE or (kind == _CONCATENATION and _kind(expression, _PARTS) == _PLAIN_TYPE)


def _kind(expression: bytes, start: int) -> int | None:
    if len(expression) < start + _KIND.size:
        return None
    attribute, length, kind = _KIND.unpack_from(expression, start)
    return int(kind) if (attribute, length) == (0, 4) else None
