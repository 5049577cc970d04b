"""The modes of kube-proxy on Linux."""

from enum import Enum


class Mode(Enum):
    """A mode of kube-proxy; the value is its name on the command line."""

    IPTABLES = "iptables"
    IPVS = "ipvs"
    NFTABLES = "nftables"
