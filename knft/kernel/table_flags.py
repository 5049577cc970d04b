"""Reads the names and flags of all tables through netlink, without their contents.

libnftables 1.0.6 reads all elements of all tables to list their names. That takes a second for 100 000 endpoints, and
crashes on sets made by a newer libnftables.
"""

from knft.errors import KernelError
from knft.kernel import nftables_dump

_TABLE_NAME, _TABLE_FLAGS = 1, 2  # NFTA_TABLE_...
_FLAGS = {1: "dormant", 2: "owner", 4: "persist"}


def table_flags() -> dict[tuple[str, str], frozenset[str]]:
    """Return the flags of each table by family and name; raise KernelError if the kernel refuses."""
    try:
        tables = nftables_dump.dump(nftables_dump.GET_TABLE, nftables_dump.NEW_TABLE)
    except OSError as error:
        msg = f"cannot list the names of nftables tables: {error.strerror}"
        raise KernelError(msg) from error
    return {(table.family, table.text(_TABLE_NAME)): _flags(table.fields.get(_TABLE_FLAGS, b"")) for table in tables}


def _flags(number: bytes) -> frozenset[str]:
    bits = int.from_bytes(number, "big")
    return frozenset(name for bit, name in _FLAGS.items() if bits & bit)


def flags_of(family: str, name: str) -> frozenset[str]:
    """Return the flags of one table; none if it does not exist. Raises KernelError as ``table_flags`` does."""
    return table_flags().get((family, name), frozenset())
