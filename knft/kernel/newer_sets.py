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
from collections.abc import Collection, Iterable, Iterator

from msgspec import Struct

from knft.errors import KernelError, LibraryDiedError, UnavailableError
from knft.families import FAMILY_OF_NUMBER, Family
from knft.kernel import nftables_dump
from knft.kernel.set_deletion import delete_set

FAMILY_NUMBER = {family: number for number, family in FAMILY_OF_NUMBER.items()}

_PLAIN_TYPE = 4
"""The number of the expression kind for plain types in user data, which 1.0.6 does not know."""
_CONCATENATION = 13
_SET_TABLE, _SET_NAME, _USER_DATA = 1, 2, 13  # NFTA_SET_...
_TYPES = (3, 4)  # NFTNL_UDATA_SET_KEY_TYPEOF, NFTNL_UDATA_SET_DATA_TYPEOF
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
    try:
        return [_named_set(item) for item in nftables_dump.dump(nftables_dump.GET_SET, nftables_dump.NEW_SET)]
    except OSError as error:
        msg = f"cannot list the names of nftables sets: {error.strerror}"
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


def _named_set(item: nftables_dump.Item) -> NamedSet:
    newer = any(kind in _TYPES and _is_newer(value) for kind, value in _user_data(item.fields.get(_USER_DATA, b"")))
    return NamedSet(item.family, item.text(_SET_TABLE), item.text(_SET_NAME), newer)


def _user_data(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield kind and payload of the attributes of a set's user data, with one byte for each kind and length."""
    start = 0
    while start + 2 <= len(data):
        kind, length = data[start], data[start + 1]
        yield kind, data[start + 2 : start + 2 + length]
        start += 2 + length


def _is_newer(expression: bytes) -> bool:
    kind = _kind(expression, 0)
    return kind == _PLAIN_TYPE or (kind == _CONCATENATION and _kind(expression, _PARTS) == _PLAIN_TYPE)


def _kind(expression: bytes, start: int) -> int | None:
    if len(expression) < start + _KIND.size:
        return None
    attribute, length, kind = _KIND.unpack_from(expression, start)
    return int(kind) if (attribute, length) == (0, 4) else None
