"""Settings of the IPVS mode: its own flags, and facts about the machine."""

import enum

from msgspec import Struct

from knft_compat.ipvs.existing import ExistingServer


class RuleVersion(enum.Enum):
    """The version of kube-proxy's rules to render, as in the flag --vintage (docs/behaviour/ipvs.md#versions).

    Versions have the name of the document that describes them (docs/verification.md#original-documents): no release has
    exactly these rules.
    """

    DOCUMENT_003 = "document-003"
    """kube-proxy's published IPVS rules: KUBE-FIREWALL and KUBE-MARK-DROP in nat."""
    DOCUMENT_002 = "document-002"
    """The rules shortly before kube-proxy 1.26."""
    DOCUMENT_004 = "document-004"
    """The rules of the sync function of about kube-proxy 1.29."""
    NEWEST = "newest"


DEPRECATED_NAMES = {
    "1.23": RuleVersion.DOCUMENT_003,
    "1.26": RuleVersion.DOCUMENT_002,
    "1.29": RuleVersion.DOCUMENT_004,
}
"""Names of releases that --vintage accepts with a warning."""


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
