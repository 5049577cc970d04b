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
        ("iptables",), "a port that a live cluster IP does not have is not refused: the packet goes its way", "C.4(10)"
    ),
    "unallocated address": Reason(_BOTH, "cluster IPs that no Service has are not dropped", "C.4(11)"),
    "localhost": Reason(("iptables",), "NodePorts answer on loopback addresses of IPv4", "C.11, D.5"),
    "every address": Reason(
        _BOTH, "without `--nodeport-addresses`, NodePorts answer on every address, not on the primary one", "C.11, I.5"
    ),
    "refused everywhere": Reason(
        ("iptables",), "NodePorts that nobody answers are refused or dropped on every local address", "D.5(5)"
    ),
    "own refusal": Reason(
        ("iptables",), "the node's own packets to external IPs that nobody answers are not refused", "D.3"
    ),
    "guard without endpoints": Reason(
        ("iptables",), "source ranges guard nothing while the Service has no endpoints", "D.5"
    ),
    "any own source": Reason(
        ("ipvs",), "a node whose address is in a source range may dial from every address it has", "E.6, E.7(9)"
    ),
    "policy Local, nobody here": Reason(
        ("ipvs",),
        "where policy Local finds no endpoint on the node, others answer or the client is refused; nothing is dropped",
        "E.6",
    ),
    "policy Local, from here": Reason(
        ("ipvs",), "under external policy Local, the node and its pods reach the endpoints on the node alone", "E.6"
    ),
    "bound addresses": Reason(
        ("ipvs",),
        "the node's own packets to a frontend have its address as their source, as it is bound to the node",
        "E.6, E.7(3)",
    ),
    "claims": Reason(_BOTH, "of two Services that claim one frontend, either may have it, or both", "D.5, E.6"),
}


def table() -> str:
    """Return the list as the README's table."""
    rows = [f"| {', '.join(reason.modes)} | {reason.what} | {reason.source} |" for reason in DEPARTURES.values()]
    return "\n".join(["| modes | what they do otherwise | behaviour.md |", "| --- | --- | --- |", *rows])
