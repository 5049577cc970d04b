"""Words of sentences: lists, port numbers and times."""

from collections.abc import Iterable
from datetime import UTC, datetime

from knft.protocols import NFT_PROTOCOLS, Protocol

MAX_LISTED = 5


def listed(texts: Iterable[str]) -> str:
    """Return texts as a list; of many, the first ones and how many there are besides."""
    found = list(texts)
    rest = len(found) - MAX_LISTED
    if rest > 0:
        return f"{', '.join(found[:MAX_LISTED])} and {rest} more"
    return " and ".join([", ".join(found[:-1]), found[-1]]) if len(found) > 1 else "".join(found)


def number_text(port: int, protocol: Protocol) -> str:
    """Return a port number with its protocol."""
    return f"{port}/{NFT_PROTOCOLS[protocol]}"


def time_text(unix_seconds: float) -> str:
    """Return a time in whole seconds, with its date and time zone."""
    return f"{datetime.fromtimestamp(int(unix_seconds), UTC):%Y-%m-%d %H:%M:%S} UTC"
