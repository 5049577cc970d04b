"""Lists tables as ``nft -j list table`` does: knft's own, kube-proxy's and those of other programs, one by one.

The commands use it; KernelTable reads the table that a sync changes.
"""

import re

import msgspec

from knft.errors import KernelError, LibraryDiedError
from knft.families import Family
from knft.kernel import netlink_socket
from knft.kernel.command_runner import CommandRunner
from knft.kernel.generation import generation
from knft.kernel.newer_sets import library_death_error
from knft.kernel.table import KernelTable, list_without_elements
from knft.nft.codec.elements import FOREIGN_VERDICT
from knft.nft.codec.listed_table import listed_element
from knft.nft.codec.listing import TableListing

_NO_SUCH_TABLE = "No such file or directory"
_NETFILTER = 12  # NETLINK_NETFILTER
_ANSWER_TIMEOUT_SECONDS = 60
_ATTEMPTS = 3
"""How often knft's table is read in all if a transaction is committed meanwhile."""
_NAME = re.compile(r"[\w./\\-]+", re.ASCII)


def list_own_table_json(library: CommandRunner, family: Family, name: str) -> str | None:
    """Return knft's table as ``list_table_json`` does, but without the elements that packets have added to sets.

    There may be millions of these. libnftables, which needs 2 KB of memory for an element, lists the rules alone; knft
    reads the elements. If it cannot read all of them, or other transactions interrupt it, libnftables lists the table.
    """
    table = KernelTable(library, family, name)
    for _ in range(_ATTEMPTS):
        before = _generation()
        try:
            found = table.read()
        except KernelError:
            break
        listed = table.list_json() if found is not None else None
        if found is None or listed is None:
            return None
        if not _is_readable(found):
            break
        if _generation() == before:
            return _with_elements(listed, found)
    return list_table_json(library, family, name)


def _is_readable(found: TableListing) -> bool:
    return not found.unreadable and FOREIGN_VERDICT not in found.contents.entries.values()


def _with_elements(listed: str, found: TableListing) -> str:
    elements = found.contents.elements()
    document = msgspec.json.decode(listed)
    for item in document["nftables"]:
        container = item.get("set") or item.get("map") or {}
        if container.get("name") in elements:
            container["elem"] = [listed_element(key, value) for key, value in elements[container["name"]].items()]
    return msgspec.json.encode(document).decode()


def _generation() -> int:
    try:
        with netlink_socket.open_netlink(_NETFILTER, _ANSWER_TIMEOUT_SECONDS) as netlink:
            return generation(netlink, 1)
    except OSError as error:
        msg = f"cannot open a netlink socket: {error.strerror}"
        raise KernelError(msg) from error


def list_table_json(library: CommandRunner, family: Family, name: str) -> str | None:
    """Return a table as JSON, or None if it does not exist; raise KernelError.

    Pass a WorkerProcess as ``library``: libnftables 1.0.6 crashes on sets made by a newer libnftables.
    """
    try:
        return library.run(f"list table {family.nft} {name}")
    except LibraryDiedError as error:
        raise library_death_error(error) from error
    except KernelError as error:
        if _NO_SUCH_TABLE in error.detail:
            return None
        msg = f"cannot list table {family.nft} {name}: {error}"
        raise KernelError(msg, error.detail) from error


def list_foreign_table_json(library: CommandRunner, family: str, name: str) -> str | None:
    """Return a table of another program without elements of named sets as JSON, or None if it does not exist.

    Raises KernelError. Pass a WorkerProcess as ``library``, as to ``list_table_json``.
    """
    # The kernel accepts any name, also one that nft would read as further commands.
    if not _NAME.fullmatch(name):
        msg = f"cannot list table {family} {name!r}: nft does not accept this name"
        raise KernelError(msg)
    try:
        return list_without_elements(library, family, name)
    except LibraryDiedError as error:
        raise library_death_error(error) from error
