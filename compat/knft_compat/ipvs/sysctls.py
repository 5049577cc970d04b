"""The kernel's settings and IPVS's timeouts, as they are made when kube-proxy starts (E.2)."""

from collections.abc import Iterator

from msgspec import Struct

from knft_compat.ipvs.settings import Settings
from knft_compat.page import Sysctl, Sysctls

_REUSE_FROM, _REUSE_BEFORE = (4, 1), (5, 9)


class SetTimeouts(Struct, frozen=True, tag="timeouts"):
    """Seconds after which connections are forgotten; 0 leaves a timeout as it is, and three zeros do nothing."""

    tcp: int
    tcp_fin: int
    udp: int
    tool = ("sh",)

    def text(self) -> Iterator[str]:
        """Yield the command."""
        if self.tcp or self.tcp_fin or self.udp:
            yield f"ipvsadm --set {self.tcp} {self.tcp_fin} {self.udp}"


def sysctls(settings: Settings) -> Sysctls:
    """Return the settings for a kernel: those before 4.1 cannot reuse connections, those from 5.9 do it right."""
    reuse = [Sysctl("net/ipv4/vs/conn_reuse_mode", 0)] if _REUSE_FROM <= settings.kernel < _REUSE_BEFORE else []
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
    """Return the timeouts that are asked for."""
    return SetTimeouts(settings.timeouts.tcp, settings.timeouts.tcp_fin, settings.timeouts.udp)
