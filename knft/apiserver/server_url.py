"""Checks and shortens the URLs of API servers and proxies; sends nothing."""

from urllib3.exceptions import LocationParseError
from urllib3.util import parse_url


def is_http_url(text: str) -> bool:
    """Tell whether a text is an http or https URL with a host, and without query and fragment."""
    if not text.startswith(("http://", "https://")):
        return False
    try:
        url = parse_url(text)
    except LocationParseError:
        return False
    return bool(url.host) and url.query is None and url.fragment is None


def without_credentials(url: str) -> str:
    """Return a URL without its user name and password, for messages and metrics."""
    scheme, separator, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{separator}{host.rpartition('@')[2]}{slash}{path}"
