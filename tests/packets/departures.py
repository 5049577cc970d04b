"""Where kube-proxy's other modes differ by intent, as packets of scenarios name it: knft's own list."""

from knft.interpret.compare.intent import INTENTS, table
from knft.takeover.names import Mode

__all__ = ["UNSEEN", "departures", "table"]

UNSEEN = {
    ("remote hairpin", Mode.IPTABLES): "no pod of another node sends to itself through this one",
    ("another's cluster IP", Mode.IPTABLES): "no external IP is another Service's cluster IP",
    ("another's cluster IP", Mode.IPVS): "the same",
    ("localnet", Mode.IPTABLES): "no process takes another address to dial loopback",
    ("invalid packets", Mode.IPTABLES): "every packet is the first of a connection",
    ("guarded throughout", Mode.IPVS): "the same",
    ("affinity by frontend", Mode.IPVS): "a packet is sent to one frontend",
    ("refused ports", Mode.IPVS): "no port of an external IP is dialled that it does not have",
    ("marked everywhere", Mode.IPVS): "the node sends nothing to itself that nobody serves",
    ("forwarding rules", Mode.IPTABLES): "the node in the lab has no rules of its own",
    ("health check ports", Mode.IPTABLES): "the same",
    ("health check ports", Mode.IPVS): "the same",
}
"""Differences that no packet of a scenario shows, and why; ``tests/interpret/test_intents.py`` shows them."""


def departures(mode: str) -> set[str]:
    """Return the reasons that packets can give in a mode."""
    return {intent.reason for intent in INTENTS if Mode(mode) in intent.modes}
