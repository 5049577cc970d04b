"""What the IPVS mode's own flags and its machine say."""

import enum

from msgspec import Struct

from knft_compat.ipvs.existing import ExistingServer


class Vintage(enum.Enum):
    """The kube-proxy whose rules are meant, spelled as on the command line (E.10)."""

    V1_23 = "1.23"
    """Document 003: KUBE-FIREWALL and KUBE-MARK-DROP in nat."""
    V1_26 = "1.26"
    """Document 002."""
    V1_29 = "1.29"
    """Document 004."""
    NEWEST = "newest"


class Timeouts(Struct, frozen=True):
    """Seconds after which IPVS forgets connections; 0 keeps what the kernel has."""

    tcp: int = 0
    tcp_fin: int = 0
    udp: int = 0


class Settings(Struct, frozen=True):
    """Settings of the IPVS mode.

    ``kernel`` is the version (major, minor) of the node's kernel. ``excluded`` are the CIDRs whose virtual servers are
    somebody else's. ``servers`` and ``bound`` are what is there: virtual servers, and addresses on kube-proxy's device;
    None where it was not asked, as on a machine without any. ``remarks`` are sentences about the reading of them.
    """

    vintage: Vintage = Vintage.NEWEST
    scheduler: str = "rr"
    excluded: tuple[str, ...] = ()
    strict_arp: bool = False
    timeouts: Timeouts = Timeouts()
    kernel: tuple[int, int] = (6, 1)
    servers: tuple[ExistingServer, ...] | None = None
    bound: tuple[str, ...] | None = None
    remarks: tuple[str, ...] = ()
