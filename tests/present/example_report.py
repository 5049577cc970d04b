"""Example reports; ``python -m tests.present.example_report FOLDER`` writes them to a directory in all formats.

``python -m tests.present.example_report --golden`` writes the golden files of the text.
"""

import re
import sys
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from knft.interpret.compare.deciding_rules import DecidingRule
from knft.interpret.compare.expected_differences.catalogue import EXPECTED_DIFFERENCES
from knft.interpret.compare.findings import Counts
from knft.interpret.compare.report import (
    DifferenceGroup,
    Example,
    FamilyReport,
    ObservedOutcome,
    Report,
    ReportMetadata,
    UninterpretedRule,
)
from knft.present import html, json, table

_FILES = ("--iptables-save iptables-save.txt", "--ip6tables-save ip6tables-save.txt")
LEFT, RIGHT = ", ".join(_FILES), "knft"
LABELS = ("kube-proxy (captured)", "knft")

ABOUT = ReportMetadata(
    node="worker-3",
    addresses=("192.0.2.13", "2001:db8::13"),
    date="2026-10-19 14:02 UTC",
    command=f"knft diff -f objects.yaml --node worker-3 --cluster-cidr 10.244.0.0/16,fd00:244::/48 {' '.join(_FILES)}",
    version="0.6.0",
    right_files=("objects.yaml",),
)

_LEFT_RULES = (
    "nat PREROUTING: line 41: -A PREROUTING -m comment --comment 'kubernetes service portals' -j KUBE-SERVICES",
    (
        "nat KUBE-SERVICES: line 96: -A KUBE-SERVICES -d 10.96.14.7/32 -p tcp -m comment --comment "
        '"shop/checkout:http cluster IP" -m tcp --dport 80 -j KUBE-SVC-4N57TFCL4MD7ZTDA'
    ),
    (
        "nat KUBE-SVC-4N57TFCL4MD7ZTDA: line 231: -A KUBE-SVC-4N57TFCL4MD7ZTDA ! -s 10.244.0.0/16 -d 10.96.14.7/32 "
        "-p tcp -m tcp --dport 80 -j KUBE-MARK-MASQ"
    ),
    (
        "nat KUBE-SEP-XBBZ4K3Z4RVY4WRO: line 188: -A KUBE-SEP-XBBZ4K3Z4RVY4WRO -p tcp -m tcp "
        "-j DNAT --to-destination 10.244.1.17:8080"
    ),
)
_RIGHT_RULES = (
    "ip knft nat-prerouting: jump services",
    "ip knft services: ip daddr . meta l4proto . th dport vmap @service-ips",
    "ip knft filter-forward: ct state new jump service-endpoints-check",
    "ip knft service-endpoints-check: ip daddr . meta l4proto . th dport vmap @no-endpoint-services",
    "ip knft reject-chain: reject",
)


def _report(families: list[FamilyReport], **more: Any) -> Report:
    return Report(LEFT, RIGHT, families, labels=LABELS, **more)


def _left_decision(outcome: ObservedOutcome, address: str, port: str) -> DecidingRule | None:
    """Return the rule of kube-proxy that decides an outcome, None if there is none."""
    file = _FILES[":" in address]
    to = f"-d {address} -p tcp -m tcp --dport {port}"
    if outcome.fate == "rejected":
        return DecidingRule(file, "filter KUBE-SERVICES", 31, f"-A KUBE-SERVICES {to} -j REJECT")
    if outcome.fate == "dropped":
        return DecidingRule(file, "filter FORWARD", 19, f"-A FORWARD {to} -j DROP")
    if not outcome.endpoint:
        return None
    if outcome.source == "masqueraded":
        return DecidingRule(file, "nat KUBE-POSTROUTING", 66, "-A KUBE-POSTROUTING -j MASQUERADE --random-fully")
    chain = "KUBE-SEP-XBBZ4K3Z4RVY4WRO"
    affinity = f"-m recent --name {chain} --set " if outcome.seconds else ""
    rule = f"-A {chain} {affinity}-p tcp -m tcp -j DNAT --to-destination {outcome.endpoint}"
    return DecidingRule(file, f"nat {chain}", 188, rule)


def _right_decision(outcomes: tuple[ObservedOutcome, ...], address: str) -> DecidingRule | None:
    """Return the rule of knft that decides an outcome, None if there is none."""
    (outcome, *_), number, family = outcomes, len(outcomes), "ip6" if ":" in address else "ip"
    dnat = f"dnat {family} to {family} daddr . tcp dport . numgen random mod {number} map @endpoints-tcp"
    if outcome.fate == "rejected":
        chain, rule = "reject-chain", "reject"
    elif outcome.fate == "dropped":
        chain = "service-endpoints-check"
        rule = f"{family} daddr . meta l4proto . th dport vmap @no-endpoint-services"
    elif not outcome.endpoint:
        return None
    elif outcome.seconds:
        client = f"{{ {family} saddr . meta priority timeout {outcome.seconds}s }}"
        chain, rule = f"affinity-{outcome.seconds}-tcp-{number}", f"update @affinity-clients {client} {dnat}"
    else:
        chain, rule = f"pool-tcp-{number}", dnat
    return DecidingRule("knft", f"{family} knft {chain}", 0, rule)


def example(
    left: tuple[ObservedOutcome, ...],
    right: tuple[ObservedOutcome, ...],
    destination: str = "10.96.14.7 port 80/tcp",
    client: str = "new",
    flags: tuple[str, ...] = ("--in-interface=eth0",),
) -> Example:
    address, _, port = re.sub(r" \(.*?\)", "", destination).replace("any", "443").partition(" port ")
    source = "2001:db8:ffff::7" if ":" in address else "198.51.100.7"
    address = address.replace("0/24", "20")
    number = port.partition("/")[0]
    to = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
    return Example(
        sender="the network from any in eth0",
        destination=destination,
        client=client,
        left=left,
        right=right,
        left_rules=_LEFT_RULES,
        right_rules=_RIGHT_RULES,
        left_decision=_left_decision(left[0], address, number),
        right_decision=_right_decision(right, address),
        trace=(f"--from={source}", f"--to={to}", *flags),
    )


def delivered(endpoint: str, share: str = "1", source: str = "kept", seconds: int | None = None) -> ObservedOutcome:
    return ObservedOutcome(share, "delivered", endpoint, source, seconds)


REJECTED, DROPPED, UNDECIDED = (
    ObservedOutcome("1", "rejected"),
    ObservedOutcome("1", "dropped"),
    ObservedOutcome("1", "undecided"),
)


def group(
    cause: str, service: str, left: str, right: str, examples: list[Example], *, classes: int = 1
) -> DifferenceGroup:
    is_loss = left.startswith("reaches") and not right.startswith("reaches")
    return DifferenceGroup(cause, service, None, f"{left} → {right}", classes, examples, left, right, is_loss)


def expected_group(number: int, service: str, classes: int = 2) -> DifferenceGroup:
    intent = EXPECTED_DIFFERENCES[number]
    examples = [
        example((delivered("10.244.1.17:8080"),), (DROPPED,), "127.0.0.1 (an address of the node) port 30080/tcp")
    ]
    return DifferenceGroup("expected", service, intent.reason, intent.description, classes, examples)


def undecided_group(service: str, classes: int) -> DifferenceGroup:
    examples = [example((UNDECIDED,), (delivered("10.244.2.5:5432"),), "10.96.3.3 port 5432/tcp")]
    return DifferenceGroup(
        "undecided", service, None, "these packets reach a rule that knft cannot interpret", classes, examples
    )


def _differences() -> list[DifferenceGroup]:
    three = tuple(delivered(f"10.244.{number}.17:8080", "1/3") for number in (1, 2, 3))
    two = tuple(delivered(f"10.244.{number}.17:8080", "1/2") for number in (1, 2))
    return [
        group(
            "verdict",
            "shop/checkout:http",
            "reaches 10.244.1.17:8080",
            "is rejected",
            [
                example((delivered("10.244.1.17:8080"),), (REJECTED,)),
                example(
                    (delivered("10.244.1.17:8080"),), (REJECTED,), "192.0.2.13 (an address of the node) port 31080/tcp"
                ),
            ],
            classes=14,
        ),
        group(
            "verdict",
            "shop/metrics",
            "is delivered, not translated",
            "is dropped",
            [example((delivered(""),), (DROPPED,), "10.96.200.9 port 9090/tcp")],
            classes=2,
        ),
        group(
            "verdict",
            "",
            "is dropped",
            "is delivered, not translated",
            [example((DROPPED,), (delivered(""),), "198.51.100.0/24 port any/tcp")],
        ),
        group(
            "endpoints",
            "shop/cart:grpc",
            "reaches 10.244.1.17:8080, 10.244.2.17:8080, 10.244.3.17:8080 (1/3 each)",
            "reaches 10.244.1.17:8080, 10.244.2.17:8080 (1/2 each)",
            [example(three, two, "10.96.20.1 port 9000/tcp")],
            classes=6,
        ),
        group(
            "masquerade",
            "shop/frontend:https",
            "reaches 10.244.4.2:8443, source masqueraded",
            "reaches 10.244.4.2:8443",
            [example((delivered("10.244.4.2:8443", source="masqueraded"),), (delivered("10.244.4.2:8443"),))],
            classes=3,
        ),
        group(
            "affinity",
            "auth/keycloak:http",
            "reaches 10.244.6.9:8080, affinity 10800 s",
            "reaches 10.244.6.9:8080, affinity 600 s",
            [
                example(
                    (delivered("10.244.6.9:8080", seconds=10800),),
                    (delivered("10.244.6.9:8080", seconds=600),),
                    "10.96.77.1 port 8080/tcp",
                    "was sent to 10.244.6.9:8080",
                    ("--remembered=10.244.6.9:8080",),
                )
            ],
            classes=4,
        ),
    ]


def realistic() -> Report:
    """Return a report with all kinds of entries, of a dual-stack node."""
    shops = ("shop/checkout:http", "shop/cart:grpc", "shop/frontend:https", "auth/keycloak:http")
    first = FamilyReport(
        "IPv4",
        Counts(equal=18_412, expected=212, different=30, undecided=3),
        [
            *_differences(),
            undecided_group("data/postgres:sql", 3),
            *(expected_group(number, service, 11) for number in (1, 2, 3, 7) for service in shops),
            expected_group(8, "", 36),
        ],
        [
            UninterpretedRule(
                "left",
                "filter FORWARD",
                17,
                "-A FORWARD -p tcp -m string --string 'GET /admin' --algo bm --to 65535 -j REJECT",
            )
        ],
    )
    second = FamilyReport(
        "IPv6",
        Counts(equal=11_020, expected=88, different=5),
        [
            group(
                "verdict",
                "shop/checkout:http",
                "reaches [fd00:244:1::17]:8080",
                "is rejected",
                [example((delivered("[fd00:244:1::17]:8080"),), (REJECTED,), "fd00:96::e07 port 80/tcp")],
                classes=5,
            ),
            *(expected_group(number, service, 11) for number in (1, 3) for service in shops),
        ],
    )
    warning = (
        f"a rule of another program drops packets to mail/smtp on both sides: {_FILES[0]}, line 4, chain raw "
        "PREROUTING: -A PREROUTING -d 10.96.31.5/32 -j DROP"
    )
    return _report([first, second], seconds=2.38, warnings=[warning], metadata=ABOUT)


def equal() -> Report:
    """Return a report without differences."""
    return _report([FamilyReport("IPv4", Counts(equal=1204)), FamilyReport("IPv6", Counts(equal=980))])


def expected() -> Report:
    """Return a report with only expected differences."""
    groups = [expected_group(1, "default/web:http"), expected_group(1, "default/web:https"), expected_group(8, "")]
    return _report([FamilyReport("IPv4", Counts(equal=40, expected=6), groups)])


def losing() -> Report:
    """Return a report with only expected differences, of which one keeps clients from a Service."""
    lost = replace(expected_group(3, "default/web:http"), is_loss=True)
    return _report([FamilyReport("IPv4", Counts(equal=40, expected=3), [lost, expected_group(1, "a/b")])])


def undecided() -> Report:
    """Return a report with an uninterpreted rule and undecided packets, but no differences."""
    rule = UninterpretedRule("right", "inet firewall input", 0, "meta cgroupv2 5 drop")
    family = FamilyReport("IPv4", Counts(equal=40, undecided=2), [undecided_group("default/db", 2)], [rule])
    return _report([family])


def large(groups: int) -> Report:
    """Return a report with this number of differences."""
    left, right = (delivered("10.244.1.17:8080"),), (REJECTED,)
    listed = [
        group("verdict", f"team-{number % 40}/service-{number}:http", "reaches 10.244.1.17:8080", "is rejected",
              [example(left, right, f"10.{number >> 8}.{number & 255}.1 port 80/tcp")] * 3, classes=3)
        for number in range(groups)
    ]  # fmt: skip
    return _report([FamilyReport("IPv4", Counts(equal=9, different=3 * groups), listed)], metadata=ABOUT)


def crowded(services: int = 300) -> Report:
    """Return a report with many Services, long names and long addresses: lost, changed, and lost as expected."""
    namespace = "observability-and-telemetry-platform-services-of-the-eu-region"
    left = tuple(delivered(f"[fd00:10:244:{number}:aaaa:bbbb:cccc:dddd]:8080", "1/3") for number in (1, 2, 3))
    reached = "reaches " + ", ".join(outcome.endpoint for outcome in left) + " (1/3 each)"
    others = "reaches [fd00:10:244:1:aaaa:bbbb:cccc:dddd]:8080 (1/2); reaches 10.244.1.1:8080, source masqueraded (1/2)"
    right = (delivered("[fd00:10:244:1:aaaa:bbbb:cccc:dddd]:8080", "1/2"),) * 2
    groups = []
    for number in range(services):
        name = f"{namespace}/recommendation-engine-for-returning-customers-{number}:metrics-prometheus"
        address = f"fd00:10:96:1234:5678:9abc:def0:{number:x} port 65535/tcp"
        groups += [
            group("verdict", name, reached, "is rejected", [example(left, (REJECTED,), address)]) if number % 3 == 0
            else group("endpoints", name, reached, others, [example(left, right, address)]) if number % 3 == 1
            else replace(expected_group(3, name), is_loss=True)
        ]  # fmt: skip
    counts = Counts(equal=9, different=services * 2 // 3, expected=services // 3)
    return _report([FamilyReport("IPv6", counts, groups)], metadata=ABOUT)


GOLDEN = {"report": realistic, "losing": losing}
"""The reports whose text is in golden files."""


def golden_file(name: str, width: int | None) -> Path:
    """Return the file with the text of a report at a width."""
    return Path(__file__).parent / "golden" / f"{name}-{width or 'piped'}.txt"


def write_golden_files() -> None:
    """Write the text of the reports at each width."""
    for name, report in GOLDEN.items():
        for width in (80, 200, None):
            golden_file(name, width).write_text(table(report(), width=width))


def main(folder: Path) -> None:
    """Write the realistic report in all formats, and the others as pages, to a directory."""
    Path(folder, "report.txt").write_text(table(realistic()))
    Path(folder, "report.json").write_text(json(realistic()))
    for name, report in (
        ("report", realistic()),
        ("equal", equal()),
        ("expected", expected()),
        ("undecided", undecided()),
        ("losing", losing()),
        ("crowded", crowded()),
        ("large", large(5000)),
    ):
        report.metadata = replace(report.metadata, command=f"{ABOUT.command} -o html")
        Path(folder, f"{name}.html").write_text(html(report))


if __name__ == "__main__":
    write_golden_files() if sys.argv[1] == "--golden" else main(Path(sys.argv[1]))
