"""Chooses the HTTP proxy for a server: the configured one or the environment's, unless NO_PROXY lists the server."""

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit
from urllib.request import getproxies


def proxy_for(server: str, configured: str) -> str:
    """Return the URL of the proxy, "" for a direct connection.

    The environment's variables are HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY, in lower or upper case.
    """
    environment: Mapping[str, str] = getproxies()
    proxy = configured or environment.get(urlsplit(server).scheme) or environment.get("all") or ""
    return "" if proxy and _is_excluded(server, environment.get("no", "")) else proxy


def _is_excluded(server: str, no_proxy: str) -> bool:
    """Tell whether a comma-separated list of hosts, domains, addresses, CIDRs or ``*`` contains the server."""
    url = urlsplit(server)
    host, host_and_port = (url.hostname or "").lower(), url.netloc.lower()
    if not host:
        return True
    for entry in filter(None, (entry.strip().lower() for entry in no_proxy.split(","))):
        domain = entry.lstrip(".")
        if entry == "*" or _in_network(host, entry) or domain in (host, host_and_port):
            return True
        if host.endswith(f".{domain}") or host_and_port.endswith(f".{domain}"):
            return True
    return False


def _in_network(host: str, cidr: str) -> bool:
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(cidr, strict=False)
    except ValueError:
        return False
