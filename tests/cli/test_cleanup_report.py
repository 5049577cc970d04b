"""The lines that ``knft cleanup`` prints for its steps."""

import pytest

from knft.cli.cleanup_report import Step, format_step

SERVERS = tuple(f"tcp 198.51.100.7:{port}" for port in range(1, 5))


@pytest.mark.parametrize(
    ("step", "line"),
    [
        (Step("table ip knft", "not found"), "table ip knft: not found"),
        (Step("table ip knft", "removed"), "table ip knft: removed"),
        (
            Step("table ip knft", "would be removed", contents={"chain": 1, "element": 1200}),
            "table ip knft, with 1 chain, 1 200 elements: would be removed",
        ),
        (Step("ipsets", "not found", {"ipset": 0}), "ipsets: nothing found"),
        (Step("ipsets", "removed", {"ipset": 34}), "ipsets: 34 removed"),
        (Step("ipsets", "skipped", reason="ipset is not installed"), "ipsets: skipped, ipset is not installed"),
        (
            Step("iptables-nft", "removed", {"chain": 18, "rule": 1}),
            "iptables-nft: 18 chains and 1 rule removed",
        ),
        (
            Step("virtual servers", "kept", {"virtual server": 3}, SERVERS[:3], reason="not known"),
            f"virtual servers: 3 kept, not known: {', '.join(SERVERS[:3])}",
        ),
        (
            Step("virtual servers", "kept", {"virtual server": 4}, SERVERS, reason="not known"),
            f"virtual servers: 4 kept, not known: {', '.join(SERVERS[:3])}, ...",
        ),
    ],
)
def test_line_of_a_step(step: Step, line: str) -> None:
    assert format_step(step) == line
