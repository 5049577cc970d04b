"""Network settings of the hosts, each with its reason; set before there is any link, so that links inherit them."""

from collections.abc import Mapping
from typing import Final

Settings = Mapping[str, int | str]

_EVERYWHERE: Final[Settings] = {
    # The same packet may arrive by different ways in these tests, as with direct server return.
    "net.ipv4.conf.all.rp_filter": 0,
    "net.ipv4.conf.default.rp_filter": 0,
    # Without duplicate address detection, IPv6 addresses (link-local ones too) are usable at once.
    "net.ipv6.conf.all.accept_dad": 0,
    "net.ipv6.conf.default.accept_dad": 0,
    # Nothing configures itself: no router is asked for or believed.
    "net.ipv6.conf.all.accept_ra": 0,
    "net.ipv6.conf.default.accept_ra": 0,
    "net.ipv6.conf.default.router_solicitations": 0,
    # node sends back to the lan what it has no route for; nobody shall learn a shorter way from that.
    "net.ipv4.conf.all.send_redirects": 0,
    "net.ipv4.conf.default.send_redirects": 0,
    "net.ipv4.conf.all.accept_redirects": 0,
    "net.ipv4.conf.default.accept_redirects": 0,
    "net.ipv6.conf.all.accept_redirects": 0,
    "net.ipv6.conf.default.accept_redirects": 0,
    # By default the kernel sends few "unreachable" messages a second; then most rejected clients see silence.
    "net.ipv4.icmp_ratemask": 0,
    "net.ipv4.icmp_ratelimit": 0,
    "net.ipv6.icmp.ratelimit": 0,
    # A mask of types, which cannot be empty text: limit one that nobody sends, and so none of the others.
    "net.ipv6.icmp.ratemask": "127",
}

_ROUTER: Final[Settings] = {
    "net.ipv4.conf.all.forwarding": 1,
    "net.ipv4.conf.default.forwarding": 1,
    "net.ipv6.conf.all.forwarding": 1,
    "net.ipv6.conf.default.forwarding": 1,
}

HOST: Final[Settings] = _EVERYWHERE
"""A pod, or a client outside the cluster."""

NODE: Final[Settings] = {
    **_EVERYWHERE,
    **_ROUTER,
    # As Kubernetes asks for: between two pods on the bridge, answers too must pass where addresses are translated.
    "net.bridge.bridge-nf-call-iptables": 1,
    "net.bridge.bridge-nf-call-ip6tables": 1,
}

LAN: Final[Settings] = {
    **_EVERYWHERE,
    # A router that knows no route drops in silence, where a host that is no router might complain.
    **_ROUTER,
    # A switch: it does not look into packets.
    "net.bridge.bridge-nf-call-iptables": 0,
    "net.bridge.bridge-nf-call-ip6tables": 0,
}
