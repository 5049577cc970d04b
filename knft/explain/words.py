"""Words of sentences: lists, counts and ports."""

from collections.abc import Iterable

from knft.protocols import NFT_PROTOCOLS, Protocol

MAX_LISTED = 5


def listed(texts: Iterable[str]) -> str:
    """Return texts as a list; of many, the first ones and how many there are besides."""
    found = list(texts)
    rest = len(found) - MAX_LISTED
    if rest > 0:
        return f"{', '.join(found[:MAX_LISTED])} and {rest} more"
    return " and ".join([", ".join(found[:-1]), found[-1]]) if len(found) > 1 else "".join(found)


def port_text(name: str, protocol: Protocol) -> str:
    """Return the name of a port with its protocol, as an EndpointSlice has them."""
    return f"{repr(name) if name else 'without a name'} ({protocol})"


def number_text(port: int, protocol: Protocol) -> str:
    """Return a port number with its protocol."""
    return f"{port}/{NFT_PROTOCOLS[protocol]}"
