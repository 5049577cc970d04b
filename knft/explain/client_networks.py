"""Labels clients whose packets have different outcomes by their networks."""

from collections.abc import Iterator, Sequence
from ipaddress import ip_network

from knft.families import IpVersion
from knft.interpret.compare.formatting import cidrs, format_address
from knft.interpret.ranges import Ranges, intersection, ranges

OTHERS = "others"
_MAX_NETWORKS = 3


def client_labels(version: IpVersion, sources: Sequence[Ranges], absent: Ranges) -> list[str]:
    """Return a label for each group of clients: its networks, "" for the only group.

    A network may contain ``absent`` addresses, which no client has. Of the groups with many networks, the one with
    the most addresses is ``others``, which is never the label of two groups.
    """
    if len(sources) == 1:
        return [""]
    networks = [list(_networks(version, each, absent)) for each in sources]
    long = [number for number, found in enumerate(networks) if len(found) > _MAX_NETWORKS]
    others = max(long, key=lambda number: _size(sources[number]), default=None)
    return [OTHERS if number == others else _listed(found) for number, found in enumerate(networks)]


def _networks(version: IpVersion, sources: Ranges, absent: Ranges) -> Iterator[str]:
    """Yield networks that contain all sources and, besides these, only absent addresses."""
    for pair in ranges((*sources, *absent)):
        for network in map(ip_network, cidrs(version, *pair)):
            inside = intersection(sources, ((int(network.network_address), int(network.broadcast_address)),))
            if inside:
                # The absent addresses at its ends may make the network larger than its sources need.
                bits = (inside[0][0] ^ inside[-1][1]).bit_length()
                first = inside[0][0] >> bits << bits
                yield f"{format_address(version, first)}/{network.max_prefixlen - bits}"


def _size(sources: Ranges) -> int:
    return sum(last - first + 1 for first, last in sources)


def _listed(networks: list[str]) -> str:
    more = len(networks) - _MAX_NETWORKS
    return ", ".join(networks[:_MAX_NETWORKS]) + (f" and {more} more networks" if more > 0 else "")
