"""The expected differences of kube-proxy's other modes, which packets of scenarios name.

``python -m tests.support.packets.mode_differences`` writes their table into docs/comparing.md.
"""

import re
from pathlib import Path

from knft.interpret.compare.expected_differences.catalogue import EXPECTED_DIFFERENCES, markdown_table
from knft.proxy_mode import Mode

DOCUMENTATION = Path(__file__).parents[3] / "docs" / "comparing.md"
_TABLE = re.compile(r"(<!-- expected differences: .*? -->\n)(.*?)(<!-- end of expected differences -->)", re.DOTALL)

WITHOUT_PACKET = {
    ("hairpin of a remote pod", Mode.IPTABLES): "no pod on another node connects to itself through this node",
    ("external IP that is a cluster IP", Mode.IPTABLES): "no external IP is another Service's cluster IP",
    ("external IP that is a cluster IP", Mode.IPVS): "no external IP is another Service's cluster IP",
    ("non-loopback source to loopback", Mode.IPTABLES): "no process connects to loopback from another source address",
    ("invalid packets", Mode.IPTABLES): "every packet is the first of a connection",
    ("source ranges for invalid packets", Mode.IPVS): "every packet is the first of a connection",
    ("dropped invalid packets", Mode.IPTABLES): "every packet is the first of a connection",
    ("dropped invalid packets", Mode.IPVS): "every packet is the first of a connection",
    ("affinity by frontend", Mode.IPVS): "a packet is sent to one frontend",
    ("external IP ports rejected", Mode.IPVS): "no packet goes to an undefined port of an external IP",
    ("masqueraded node packets", Mode.IPVS): "the node sends no packet to itself that no Service serves",
    ("forwarding rules", Mode.IPTABLES): "the node in the lab has no rules of its own",
    ("health check ports", Mode.IPTABLES): "the node in the lab has no rules of its own",
    ("health check ports", Mode.IPVS): "the node in the lab has no rules of its own",
}
"""Differences that no packet of a scenario shows, and why. Other tests show them: test_expected_differences.py."""


def difference_names(mode: str) -> set[str]:
    """Return the names of differences that packets can give in a mode."""
    return {difference.reason for difference in EXPECTED_DIFFERENCES if Mode(mode) in difference.modes}


def with_table(text: str) -> str:
    """Return the documentation with the current table of expected differences."""
    return _TABLE.sub(lambda found: f"{found[1]}\n{markdown_table()}\n\n{found[3]}", text)


if __name__ == "__main__":
    DOCUMENTATION.write_text(with_table(DOCUMENTATION.read_text()))
