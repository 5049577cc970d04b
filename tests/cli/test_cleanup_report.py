"""The lines that ``knft cleanup`` prints for its steps."""

import io
from contextlib import redirect_stdout

import pytest

from knft.cli.cleanup_report import CleanupReport, Step, format_step
from knft.cli.output import Output
from tests.cli.example_status import WIDTHS, golden

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


ANOTHER_PROCESS = (
    "another knft process runs in this network namespace (pid 4711); stop it before the cleanup, because it would "
    "create the tables again"
)
DRY_RUNS: dict[str, tuple[Step | str, ...]] = {
    "cleanup": (
        ANOTHER_PROCESS,
        Step(
            "table ip knft", "would be removed", contents={"chain": 24, "rule": 61, "set": 9, "map": 14, "element": 120}
        ),
        Step("table ip6 knft", "not found"),
    ),
    "cleanup-kube-proxy": (
        Step("virtual servers", "skipped", reason="IPVS is not loaded"),
        Step("device kube-ipvs0", "not found"),
        Step(
            "iptables-nft: rule in table nat: PREROUTING -m comment --comment "
            '"kubernetes service portals" -j KUBE-SERVICES',
            "would be removed",
        ),
        Step("iptables-nft: chain in table nat: KUBE-SERVICES", "would be removed"),
        Step("iptables-nft", "would be removed", {"chain": 1, "rule": 1}),
        Step("ip6tables-nft", "not found", {"chain": 0, "rule": 0}),
        Step(
            "iptables-legacy: chain in table filter: KUBE-FIREWALL",
            "kept",
            reason="since a chain of another program jumps to it",
        ),
        Step("ip6tables-legacy", "not found", {"chain": 0, "rule": 0}),
        Step("ipset KUBE-CLUSTER-IP", "would be removed"),
        Step("ipsets", "would be removed", {"ipset": 1}),
        Step("table ip kube-proxy", "not found"),
        Step("table ip6 kube-proxy", "not found"),
    ),
}


def dry_run(name: str, width: int | None) -> str:
    """Return what ``knft cleanup --dry-run`` prints."""
    printed = io.StringIO()
    with redirect_stdout(printed):
        report = CleanupReport(Output(), dry_run=True, width=width)
        for step in DRY_RUNS[name]:
            if isinstance(step, Step):
                report.add(step)
            else:
                report.warn(step)
        report.finish("knft's tables")
    return printed.getvalue()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", DRY_RUNS)
def test_text_of_a_dry_run(name: str, width: str) -> None:
    assert dry_run(name, WIDTHS[width]) == golden(f"{name}-{width}")
