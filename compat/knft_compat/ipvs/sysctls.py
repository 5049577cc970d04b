"""The kernel settings and IPVS timeouts that kube-proxy sets at its start (docs/behaviour/ipvs.md#sysctls)."""

from collections.abc import Iterator

from msgspec import Struct

from knft_compat.ipvs.settings import Settings
from knft_compat.sync_output import Sysctl, Sysctls

_REUSE_MODE_SINCE, _REUSE_MODE_UNTIL = (4, 1), (5, 9)


class SetTimeouts(Struct, frozen=True, tag="timeouts"):
    """Timeouts of connections in seconds; 0 keeps the kernel's value, and three zeros do nothing."""

    tcp: int
    tcp_fin: int
    udp: int
    tool = ("sh",)

    def text(self) -> Iterator[str]:
        """Yield the command."""
        if self.tcp or self.tcp_fin or self.udp:
            yield f"ipvsadm --set {self.tcp} {self.tcp_fin} {self.udp}"


def sysctls(settings: Settings) -> Sysctls:
    """Return the settings; Linux before 4.1 has no conn_reuse_mode, and Linux 5.9 and later need not change it."""
    reuse = (
        [Sysctl("net/ipv4/vs/conn_reuse_mode", 0)] if _REUSE_MODE_SINCE <= settings.kernel < _REUSE_MODE_UNTIL else []
    )
    arp = [Sysctl("net/ipv4/conf/all/arp_ignore", 1), Sysctl("net/ipv4/conf/all/arp_announce", 2)]
    return Sysctls(
        (
            Sysctl("net/ipv4/vs/conntrack", 1),
            *reuse,
            Sysctl("net/ipv4/vs/expire_nodest_conn", 1),
            Sysctl("net/ipv4/vs/expire_quiescent_template", 1),
            Sysctl("net/ipv4/ip_forward", 1),
            *(arp if settings.strict_arp else []),
        )
    )


def timeouts(settings: Settings) -> SetTimeouts:
    """Return the configured timeouts."""
    return SetTimeouts(settings.timeouts.tcp, settings.timeouts.tcp_fin, settings.timeouts.udp)
