"""Sysctls of the hosts, set before any link is added, so that links inherit the defaults."""

from collections.abc import Mapping
from typing import Final

Sysctls = Mapping[str, int | str]

_ALL_HOSTS: Final[Sysctls] = {
    # Packets may arrive by another interface than the answers leave by.
    "net.ipv4.conf.all.rp_filter": 0,
    "net.ipv4.conf.default.rp_filter": 0,
    # No duplicate address detection: it would delay each IPv6 address by a second.
    "net.ipv6.conf.all.accept_dad": 0,
    "net.ipv6.conf.default.accept_dad": 0,
    # No autoconfiguration: no router is solicited, and advertisements are ignored.
    "net.ipv6.conf.all.accept_ra": 0,
    "net.ipv6.conf.default.accept_ra": 0,
    "net.ipv6.conf.default.router_solicitations": 0,
    # node sends packets back to the lan; its neighbors must not learn a shorter route from that.
    "net.ipv4.conf.all.send_redirects": 0,
    "net.ipv4.conf.default.send_redirects": 0,
    "net.ipv4.conf.all.accept_redirects": 0,
    "net.ipv4.conf.default.accept_redirects": 0,
    "net.ipv6.conf.all.accept_redirects": 0,
    "net.ipv6.conf.default.accept_redirects": 0,
    # No rate limit: otherwise most clients that are rejected would time out.
    "net.ipv4.icmp_ratemask": 0,
    "net.ipv4.icmp_ratelimit": 0,
    "net.ipv6.icmp.ratelimit": 0,
    # A list of ICMPv6 types to limit, which cannot be empty: a type that no host sends.
    "net.ipv6.icmp.ratemask": "127",
}

_ROUTER: Final[Sysctls] = {
    "net.ipv4.conf.all.forwarding": 1,
    "net.ipv4.conf.default.forwarding": 1,
    "net.ipv6.conf.all.forwarding": 1,
    "net.ipv6.conf.default.forwarding": 1,
}

HOST: Final[Sysctls] = _ALL_HOSTS
"""A pod, or a client outside the cluster."""

NODE: Final[Sysctls] = {
    **_ALL_HOSTS,
    **_ROUTER,
    # As Kubernetes requires: answers between two pods on the bridge have to pass NAT too.
    "net.bridge.bridge-nf-call-iptables": 1,
    "net.bridge.bridge-nf-call-ip6tables": 1,
}

LAN: Final[Sysctls] = {
    **_ALL_HOSTS,
    # A router: it drops packets by its blackhole routes without an ICMP error.
    **_ROUTER,
    # A plain switch: no netfilter for bridged packets.
    "net.bridge.bridge-nf-call-iptables": 0,
    "net.bridge.bridge-nf-call-ip6tables": 0,
}
