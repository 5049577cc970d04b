"""The report as text for a terminal."""

from collections import Counter

import pytest
from msgspec import structs
from rich.cells import cell_len

from knft.interpret.compare.findings import Counts
from knft.interpret.compare.report import DifferenceGroup, FamilyReport, Report
from knft.present import table
from knft.present.formatting import escape_invisible
from tests.present import example_report
from tests.present.hostile_report import HOSTILE_TEXTS, hostile_report

LOST = example_report.group("verdict", "shop/web:http", "reaches 10.0.0.1:80", "is rejected", [])
CHANGED = example_report.group("verdict", "shop/api", "is rejected", "reaches 10.0.0.1:80", [])
NO_SERVICE = example_report.group("verdict", "", "is dropped", "is rejected", [])


def test_summary_comes_first() -> None:
    lines = table(example_report.realistic()).splitlines()

    assert lines[0] == "Clients would see a difference at 5 Services, and some would no longer reach 1 of them"
    assert lines[1] == "35 kinds of packets different, 3 undecided, 300 with expected differences, 29432 equal"


@pytest.mark.parametrize(
    ("report", "headline"),
    [
        (example_report.equal(), "Packets have the same outcome on both sides"),
        (example_report.expected(), "Packets have the same outcome on both sides, except for expected differences"),
        (example_report.undecided(), "No difference was found, but the outcomes of some packets are undecided"),
        (Report("a", "b", [FamilyReport("IPv4", Counts())]), "Nothing was compared"),
    ],
)
def test_each_result_has_its_headline(report: Report, headline: str) -> None:
    assert table(report).splitlines()[0].startswith(headline)


def test_difference_shows_cause_service_both_sides_and_an_example() -> None:
    text = table(example_report.realistic())

    assert (
        "Different verdict (4): served on one side, but rejected, dropped or not translated on the other\n"
        "\n"
        "  shop/checkout:http  IPv4, 14 kinds of packets, no longer reached\n"
        "    kube-proxy (captured)  reaches 10.244.1.17:8080\n"
        "    decided by             --iptables-save iptables-save.txt, line 188, chain nat KUBE-SEP-XBBZ4K3Z4RVY4WRO: "
        "-A KUBE-SEP-XBBZ4K3Z4RVY4WRO -p tcp -m tcp -j DNAT --to-destination 10.244.1.17:8080\n"
        "    knft                   is rejected\n"
        "    decided by             knft, chain ip knft reject-chain: reject\n"
        "    example                --from=198.51.100.7 --to=10.96.14.7:80/tcp --in-interface=eth0\n"
        "\n"
        "  shop/checkout:http  IPv6, 5 kinds of packets, no longer reached\n"
        "    kube-proxy (captured)  reaches [fd00:244:1::17]:8080\n"
    ) in text


def test_most_serious_cause_is_first_and_expected_differences_are_last() -> None:
    text = table(example_report.realistic())
    titles = ("Different verdict", "Different endpoints", "Different source address", "Different session affinity",
              "Undecided", "Rules that are not interpreted", "Expected differences", "Kinds of packets")  # fmt: skip

    places = [text.index(f"\n{title}") for title in titles]

    assert places == sorted(places)


def test_expected_difference_takes_one_block_for_all_services_and_families() -> None:
    assert (
        "\n  unallocated cluster IP  4 Services, 88 kinds of packets\n"
        "    with kube-proxy, packets to unallocated cluster IPs are not dropped\n"
    ) in table(example_report.realistic())


def test_expected_loss_of_clients_is_in_the_headline_and_at_its_reason() -> None:
    text = table(example_report.losing())
    assert text.startswith("No unexpected differences, but some clients would no longer reach 1 Service\n")
    assert "\n  NodePorts on all addresses  1 Service, 2 kinds of packets\n" in text
    assert text.count("    some clients would no longer reach default/web\n") == 1


@pytest.mark.parametrize(
    ("groups", "headline"),
    [
        ([LOST], "Clients would see a difference at 1 Service, and some would no longer reach it"),
        ([LOST, CHANGED], "Clients would see a difference at 2 Services, and some would no longer reach 1 of them"),
        ([CHANGED], "Clients would see a difference at 1 Service"),
        ([NO_SERVICE], "Packets to addresses of no Service have different outcomes"),
    ],
)
def test_headline_says_how_many_services_clients_no_longer_reach(groups: list[DifferenceGroup], headline: str) -> None:
    counts = Counts(different=len(groups))

    assert table(Report("a", "b", [FamilyReport("IPv4", counts, groups)])).splitlines()[0] == headline


def test_services_that_clients_no_longer_reach_are_named_and_described_first() -> None:
    lines = table(Report("a", "b", [FamilyReport("IPv4", Counts(different=2), [CHANGED, LOST])])).splitlines()

    assert lines[3:5] == ["no longer reached  shop/web", "other differences  shop/api"]
    titles = ["  shop/web:http  IPv4, 1 kind of packets, no longer reached", "  shop/api  IPv4, 1 kind of packets"]
    assert [line for line in lines if line in titles] == titles


def test_expected_losses_come_before_other_expected_differences() -> None:
    lost = structs.replace(example_report.expected_group(1, "shop/web:http"), is_loss=True)
    groups = [example_report.expected_group(3, "shop/web:http"), lost]
    text = table(Report("a", "b", [FamilyReport("IPv4", Counts(expected=2), groups)]))

    assert groups[0].reason is not None
    assert lost.reason is not None
    assert text.index(f"  {lost.reason}  ") < text.index(f"  {groups[0].reason}  ")


def test_long_lists_of_services_end_in_the_number_of_the_others() -> None:
    text = table(example_report.crowded(90))

    (lost,) = [line for line in text.splitlines() if line.startswith("no longer reached  ")]
    assert (lost.count(", "), lost.endswith(" and 20 more")) == (9, True)
    (expected,) = [line for line in text.splitlines() if "some clients would no longer reach" in line]
    assert (expected.count(", "), expected.endswith(" and 20 more")) == (9, True)


def test_uninterpreted_rules_are_listed_with_side_chain_line_and_text() -> None:
    text = table(example_report.realistic())
    (line,) = [line for line in text.splitlines() if "--algo bm" in line]

    assert line == (
        "  kube-proxy (captured), IPv4, line 17, chain filter FORWARD: "
        "-A FORWARD -p tcp -m string --string 'GET /admin' --algo bm --to 65535 -j REJECT"
    )


@pytest.mark.parametrize("name", example_report.GOLDEN)
@pytest.mark.parametrize("width", [80, 200, None])
def test_text_is_that_of_the_golden_file(name: str, width: int | None) -> None:
    """``python -m tests.present.example_report --golden`` writes the files."""
    report = example_report.GOLDEN[name]()
    assert table(report, width=width) == example_report.golden_file(name, width).read_text()


def test_without_a_terminal_text_is_plain_whatever_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = table(example_report.realistic())
    for name, value in (("FORCE_COLOR", "1"), ("COLUMNS", "40"), ("TERM", "xterm-256color")):
        monkeypatch.setenv(name, value)

    assert table(example_report.realistic()) == expected
    assert "\x1b" not in expected


@pytest.mark.parametrize("width", [60, 80, 200])
def test_lines_are_folded_to_the_width_without_loss(width: int) -> None:
    narrow, wide = table(example_report.realistic(), width=width), table(example_report.realistic())

    assert max(cell_len(line) for line in narrow.splitlines()) <= width
    assert Counter("".join(narrow.split())) == Counter("".join(wide.split()))


def test_colours_on_request() -> None:
    assert "\x1b[1;31mClients would see a difference" in table(example_report.realistic(), width=100, colours=True)


def test_untrusted_text_is_complete_and_has_no_control_characters() -> None:
    text = table(hostile_report())

    assert not any(ord(character) < 32 and character != "\n" for character in text)
    assert "\u202e" not in text
    assert text.encode()
    for hostile in HOSTILE_TEXTS:
        assert escape_invisible(hostile) in text
