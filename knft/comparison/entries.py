"""Reads entries of this machine's kernel for ``knft explain``: of session affinity, and of conntrack."""

from collections.abc import Iterable, Iterator
from ipaddress import ip_address

from knft.decide.stale_flows import packed_address, packed_socket
from knft.explain.connections import ConnectionCount
from knft.families import FAMILY_OF_VERSION, Family, IpVersion
from knft.interpret.compare.formatting import format_address
from knft.interpret.outcomes import AffinityEntry
from knft.kernel.addresses import local_addresses
from knft.kernel.affinity_reader import client_seconds, count_clients
from knft.kernel.connections import Connection, count_connections
from knft.kernel.probe import require_privilege
from knft.model.addresses import of_family
from knft.model.endpoint import endpoint_key
from knft.model.plan import FrontendKey
from knft.render.names import CLIENTS, TABLE

_PORT_BYTES = 2


class KernelEntries:
    """The affinity entries of this machine's kernel (``knft.explain.affinity.Entries``)."""

    def count(self, family: Family, ids: frozenset[int]) -> tuple[dict[int, int], bool]:
        """Return the number of clients by endpoint ID, and whether these are all; raise KernelError."""
        found = count_clients(family.number, TABLE, CLIENTS, ids)
        return found.counts, found.is_complete

    def seconds(self, family: Family, ids: frozenset[int], client: str) -> dict[int, int]:
        """Return the seconds until the entries of a client expire, by endpoint ID; raise KernelError."""
        return client_seconds(family.number, TABLE, CLIENTS, ids, client)


def entries_of_client(version: IpVersion, client: int, entries: Iterable[AffinityEntry]) -> frozenset[AffinityEntry]:
    """Return which of the affinity entries in rules a client has in this machine's kernel; raise KernelError."""
    family = FAMILY_OF_VERSION[version]
    by_id = {entry[1][0]: entry for entry in entries if entry[0] == f"{family.nft} {TABLE} {CLIENTS}"}
    found = client_seconds(family.number, TABLE, CLIENTS, by_id, format_address(version, client))
    return frozenset(by_id[number] for number in found)


def frontend_connections(family: Family, frontends: frozenset[FrontendKey]) -> Iterator[ConnectionCount]:
    """Yield the conntrack entries to frontends by endpoint; raise KernelError, or UnsupportedError without privilege.

    A NodePort has the address None, and counts at each address of the machine.
    """
    require_privilege()
    own = frozenset(map(packed_address, of_family(local_addresses(), family)))
    keys = {(key[1], _packed(key)): key for key in frontends}

    def pair(connection: Connection) -> tuple[FrontendKey, bytes] | None:
        protocol, destination = connection.protocol, connection.destination
        if connection.reply_source == destination:
            return None  # not translated
        key = keys.get((protocol, destination))
        if key is None and destination[:-_PORT_BYTES] in own:
            key = keys.get((protocol, destination[-_PORT_BYTES:]))
        return None if key is None else (key, connection.reply_source)

    for (key, endpoint), count in count_connections(family, pair).items():
        address, port = ip_address(endpoint[:-_PORT_BYTES]), int.from_bytes(endpoint[-_PORT_BYTES:], "big")
        yield ConnectionCount(key, endpoint_key(str(address), port), count)


def _packed(key: FrontendKey) -> bytes:
    address, _, port = key
    return port.to_bytes(_PORT_BYTES, "big") if address is None else packed_socket(address, port)
