"""Address: where an API server, or a proxy on the way to it, may be. Pure; nobody is asked."""

from urllib3.exceptions import LocationParseError
from urllib3.util import parse_url


def is_address(text: str) -> bool:
    """Tell whether requests can be sent there: by HTTP or HTTPS, to a host, perhaps with a port and a path."""
    if not text.startswith(("http://", "https://")):
        return False
    try:
        url = parse_url(text)
    except LocationParseError:
        return False
    return bool(url.host) and url.query is None and url.fragment is None


def without_credentials(address: str) -> str:
    """Return an address as it may be shown: without the name and the password that may stand in it."""
    scheme, separator, rest = address.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{separator}{host.rpartition('@')[2]}{slash}{path}"
