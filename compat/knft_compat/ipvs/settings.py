"""Settings of the IPVS mode: its own flags, and facts about the machine."""

import enum

from msgspec import Struct

from knft_compat.ipvs.existing import ExistingServer


class RuleVersion(enum.Enum):
    """The version of kube-proxy whose rules to render, as in the flag --vintage (docs/behaviour/ipvs.md#versions)."""

    V1_23 = "1.23"
    """kube-proxy's published IPVS rules (003 in docs/verification.md#original-documents): KUBE-FIREWALL and
    KUBE-MARK-DROP in nat."""
    V1_26 = "1.26"
    """The rules of kube-proxy 1.26 (002 in docs/verification.md#original-documents)."""
    V1_29 = "1.29"
    """The rules of the sync function of kube-proxy 1.29 (004 in docs/verification.md#original-documents)."""
    NEWEST = "newest"


class Timeouts(Struct, frozen=True):
    """Timeouts of IPVS connections in seconds; 0 keeps the kernel's value."""

    tcp: int = 0
    tcp_fin: int = 0
    udp: int = 0


class Settings(Struct, frozen=True):
    """Settings of the IPVS mode.

    ``kernel`` is the version (major, minor) of the node's kernel. kube-proxy keeps virtual servers in
    ``excluded_cidrs``. ``existing_servers`` and ``existing_addresses`` are the virtual servers and the addresses of
    kube-ipvs0 on the node; None means unknown, and counts as none. ``warnings`` are messages about reading them.
    """

    rule_version: RuleVersion = RuleVersion.NEWEST
    scheduler: str = "rr"
    excluded_cidrs: tuple[str, ...] = ()
    strict_arp: bool = False
    timeouts: Timeouts = Timeouts()
    kernel: tuple[int, int] = (6, 1)
    existing_servers: tuple[ExistingServer, ...] | None = None
    existing_addresses: tuple[str, ...] | None = None
    warnings: tuple[str, ...] = ()
