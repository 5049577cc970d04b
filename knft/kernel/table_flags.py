"""Reads the names and flags of all tables through netlink, without their contents.

libnftables 1.0.6 reads all elements of all tables to list their names. That takes a second for 100 000 endpoints, and
crashes on sets made by a newer libnftables.
"""

from typing import Any

from knft.errors import KernelError

NFPROTO_NAMES = {1: "inet", 2: "ip", 3: "arp", 5: "netdev", 7: "bridge", 10: "ip6"}
_FLAGS = {1: "dormant", 2: "owner", 4: "persist"}


def table_flags() -> dict[tuple[str, str], frozenset[str]]:
    """Return the flags of each table by family and name; raise KernelError if the kernel refuses."""
    from pyroute2.netlink.exceptions import (  # type: ignore[import-untyped]  # noqa: PLC0415 - slow to import
        NetlinkError,
    )
    from pyroute2.nftables.main import NFTables  # type: ignore[import-untyped]  # noqa: PLC0415

    try:
        with NFTables(nfgen_family=0) as netlink:
            messages = list(netlink.get_tables())
    except (NetlinkError, OSError) as error:
        msg = f"cannot list the names of nftables tables: {error}"
        raise KernelError(msg) from error
    return {_name(message): _flags(message) for message in messages}


def _name(message: Any) -> tuple[str, str]:  # noqa: ANN401 - pyroute2 has no types
    family = message["nfgen_family"]
    return NFPROTO_NAMES.get(family, str(family)), message.get_attr("NFTA_TABLE_NAME")


def _flags(message: Any) -> frozenset[str]:  # noqa: ANN401 - pyroute2 has no types
    bits = message.get_attr("NFTA_TABLE_FLAGS") or 0
    return frozenset(name for bit, name in _FLAGS.items() if bits & bit)


def flags_of(family: str, name: str) -> frozenset[str]:
    """Return the flags of one table; none if it does not exist. Raises KernelError as ``table_flags`` does."""
    return table_flags().get((family, name), frozenset())
