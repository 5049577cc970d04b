"""One name for each reply of a reject rule: iptables, ip6tables and nft use different names."""

from knft.families import IpVersion

PORT_UNREACHABLE = ""
"""The default of all tools, also the reply of IPVS: an ICMP message "port unreachable"."""

TCP_RESET = "tcp-reset"

_SHORT = {
    "net-unreach": "net-unreachable",
    "host-unreach": "host-unreachable",
    "port-unreach": "port-unreachable",
    "proto-unreach": "prot-unreachable",
    "proto-unreachable": "prot-unreachable",
    "net-prohib": "net-prohibited",
    "host-prohib": "host-prohibited",
    "admin-prohib": "admin-prohibited",
    "adm-prohibited": "admin-prohibited",
    "addr-unreach": "addr-unreachable",
    "tcp-rst": TCP_RESET,
    "tcp reset": TCP_RESET,
}
"""Other names of replies, without the prefix of the protocol."""

_ICMPX: dict[IpVersion, dict[str, str]] = {
    4: {"no-route": "net-unreachable"},
    6: {"host-unreachable": "addr-unreachable"},
}
"""The names in one family of nft's family-independent replies (icmpx), if they differ."""


def reply_name(text: str, version: IpVersion) -> str:
    """Return the name of a reply as the tools write it, such as ``icmp6-adm-prohibited``; "" for the default."""
    name = text.removeprefix("icmp6-").removeprefix("icmp-")
    name = _SHORT.get(name, name)
    name = _ICMPX[version].get(name, name)
    return PORT_UNREACHABLE if name == "port-unreachable" else name
