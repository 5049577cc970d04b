"""Where kube-proxy's other modes differ from nftables by intent: a list for packets to refer to, and for the README."""

from msgspec import Struct


class Reason(Struct, frozen=True):
    """A difference: the modes that have it, what they do, and where behaviour.md says so."""

    modes: tuple[str, ...]
    what: str
    source: str


_BOTH = ("iptables", "ipvs")

DEPARTURES = {
    "undefined port": Reason(
        _BOTH, "a port that a live cluster IP does not have is not refused: the packet goes its way", "C.4(10)"
    ),
    "unallocated address": Reason(_BOTH, "cluster IPs that no Service has are not dropped", "C.4(11)"),
    "localhost": Reason(("iptables",), "NodePorts answer on loopback addresses of IPv4", "C.11, D.5"),
    "every address": Reason(
        _BOTH,
        "without `--nodeport-addresses`, NodePorts answer on every address, not on the primary one",
        "C.11, I.5",
    ),
    "refused everywhere": Reason(
        ("iptables",),
        "NodePorts that nobody answers are refused or dropped on every local address",
        "D.5(5)",
    ),
    "own refusal": Reason(
        ("iptables",), "the node's own packets to external IPs that nobody answers are not refused", "D.3"
    ),
    "guard without endpoints": Reason(_BOTH, "source ranges guard nothing while the Service has no endpoints", "D.5"),
    "claims": Reason(_BOTH, "of two Services that claim one frontend, either may have it, or both", "D.5, E.6"),
}


def table() -> str:
    """Return the list as the README's table."""
    rows = [f"| {', '.join(reason.modes)} | {reason.what} | {reason.source} |" for reason in DEPARTURES.values()]
    return "\n".join(["| modes | what they do otherwise | behaviour.md |", "| --- | --- | --- |", *rows])
