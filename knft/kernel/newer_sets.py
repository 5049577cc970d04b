"""Finds sets made by a newer libnftables, which crash an older libnftables, through netlink.

The user data of a set store the expression with which its key was declared. libnftables 1.1.3 also stores it for plain
types. 1.0.6 cannot resolve these, and crashes. Most commands make libnftables read the declarations of the sets of all
tables into its cache.

An expression in user data is a sequence of attributes. Those of a concatenation contain its parts, one after another:

    attribute:     number 1 byte, length 1 byte, payload
    expression:    attribute 0 with the kind of expression (4 bytes), then an attribute that depends on the kind
    concatenation: attribute 0 with kind 13, then an attribute that contains one attribute for each part; the payload
                   of each of these is an expression
"""

import struct
from collections.abc import Collection, Iterable
from typing import Any

from msgspec import Struct

from knft.errors import KernelError, LibraryDiedError, UnavailableError
from knft.families import FAMILY_OF_NUMBER, Family
from knft.kernel.set_deletion import delete_set
from knft.kernel.table_flags import NFPROTO_NAMES

FAMILY_NUMBER = {family: number for number, family in FAMILY_OF_NUMBER.items()}

_PLAIN_TYPE = 4
"""The number of the expression kind for plain types in user data, which 1.0.6 does not know."""
_CONCATENATION = 13
_TYPES = ("NFTNL_UDATA_SET_KEY_TYPEOF", "NFTNL_UDATA_SET_DATA_TYPEOF")
_KIND = struct.Struct("=BBI")
"""The beginning of an expression in user data: attribute 0 (1 byte), length 4 (1 byte), expression kind (4 bytes)."""
_PARTS = _KIND.size + 2 + 2
"""The offset of the first part of a concatenation: after its kind, and two attribute headers of 2 bytes each."""


class NamedSet(Struct, frozen=True):
    """A set or map, and whether a newer libnftables made it."""

    family: str
    table: str
    name: str
    is_newer: bool


def named_sets() -> list[NamedSet]:
    """Return the sets and maps of all tables; raise KernelError if the kernel refuses."""
    from pyroute2.netlink.exceptions import (  # type: ignore[import-untyped]  # noqa: PLC0415 - slow to import
        NetlinkError,
    )
    from pyroute2.nftables.main import NFTables  # type: ignore[import-untyped]  # noqa: PLC0415

    try:
        with NFTables(nfgen_family=0) as netlink:
            return [_named_set(message) for message in netlink.get_sets()]
    except (NetlinkError, OSError) as error:
        msg = f"cannot list the names of nftables sets: {error}"
        raise KernelError(msg) from error


def delete_newer_sets(family: Family, table: str, kept: Collection[str]) -> tuple[str, ...]:
    """Delete the sets of a table that a newer libnftables made, except those with the names ``kept``; return the names.

    A set to which a rule refers stays, because the kernel refuses to delete it. Raises KernelError if the kernel
    refuses to list the sets.
    """
    found = [each for each in named_sets() if (each.family, each.table, each.is_newer) == (family.nft, table, True)]
    return tuple(each.name for each in found if each.name not in kept and _is_deleted(family, each))


def _is_deleted(family: Family, found: NamedSet) -> bool:
    try:
        delete_set(FAMILY_NUMBER[family], found.table, found.name)
    except KernelError:
        return False
    return True


def library_death_error(error: LibraryDiedError) -> UnavailableError:
    """Return the error for a libnftables that crashes even on a harmless command; it names the sets that cause it."""
    return UnavailableError(f"libnftables crashes on every command ({error}){_describe_cause()}")


def _describe_cause() -> str:
    try:
        newer = [each for each in named_sets() if each.is_newer]
    except KernelError:
        newer = []
    if not newer:
        return "; no set made by a newer libnftables was found: please report this"
    return (
        f": it cannot read sets made by a newer libnftables, in {_describe_sets(newer)}; give knft "
        "libnftables 1.1 or newer, or delete these sets with the nft that made them"
    )


def _describe_sets(sets: Iterable[NamedSet]) -> str:
    tables: dict[str, list[str]] = {}
    for each in sets:
        tables.setdefault(f"{each.family} {each.table}", []).append(each.name)
    return ", ".join(f"{table} ({', '.join(sorted(names))})" for table, names in sorted(tables.items()))


def _named_set(message: Any) -> NamedSet:  # noqa: ANN401 - pyroute2 has no types
    family = message["nfgen_family"]
    data = dict(message.get_attr("NFTA_SET_USERDATA") or ())
    newer = any(_is_newer(data[key]) for key in _TYPES if key in data)
    return NamedSet(
        NFPROTO_NAMES.get(family, str(family)),
        message.get_attr("NFTA_SET_TABLE"),
        message.get_attr("NFTA_SET_NAME"),
        newer,
    )


def _is_newer(expression: bytes) -> bool:
    kind = _kind(expression, 0)
    return kind == _PLAIN_TYPE or (kind == _CONCATENATION and _kind(expression, _PARTS) == _PLAIN_TYPE)


def _kind(expression: bytes, start: int) -> int | None:
    if len(expression) < start + _KIND.size:
        return None
    attribute, length, kind = _KIND.unpack_from(expression, start)
    return int(kind) if (attribute, length) == (0, 4) else None
