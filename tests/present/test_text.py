"""What an operator reads in a terminal."""

from collections import Counter

import pytest
from rich.cells import cell_len

from knft.interpret.compare.findings import Counts
from knft.interpret.compare.report import FamilyReport, Report
from knft.present import table
from knft.present.wording import visible
from tests.present import example_report
from tests.present.hostile import HARM, hostile


def test_the_answer_comes_first() -> None:
    lines = table(example_report.realistic()).splitlines()

    assert lines[0] == "Clients would see a difference at 5 Services"
    assert lines[1] == (
        "35 classes of packets differ, 3 classes undecided, 300 classes different by intent, 29 432 classes equal"
    )


@pytest.mark.parametrize(
    ("report", "headline"),
    [
        (example_report.equal(), "Both sides do the same"),
        (example_report.intended(), "Both sides do the same, but for what is meant"),
        (example_report.undecided(), "No difference is known, but not everything could be decided"),
        (Report("a", "b", [FamilyReport("IPv4", Counts())]), "Nothing was compared"),
    ],
)
def test_each_ending_has_its_headline(report: Report, headline: str) -> None:
    assert table(report).splitlines()[0].startswith(headline)


def test_differences_are_by_cause_and_service_with_both_sides_and_an_example() -> None:
    text = table(example_report.realistic())

    assert (
        "Another verdict (4): served on one side, and refused, dropped or passed untranslated on the other\n"
        "Service               Family  Classes                         What a client sees\n"
        "shop/checkout:http    IPv4         14  kube-proxy (iptables)  reaches 10.244.1.17:8080\n"
        "                                       knft                   is refused\n"
        "                                       example                the network from any by eth0 to 10.96.14.7 port"
        " 80/tcp\n"
        "shop/checkout:http    IPv6          5  kube-proxy (iptables)  reaches [fd00:244:1::17]:8080\n"
    ) in text


def test_the_gravest_cause_is_first_and_what_is_meant_is_last() -> None:
    text = table(example_report.realistic())
    titles = ("Another verdict", "Other endpoints", "Another source address", "Other session affinity", "Undecided",
              "Rules that are not interpreted", "By intent", "Classes of packets")  # fmt: skip

    places = [text.index(f"\n{title}") for title in titles]

    assert places == sorted(places)


def test_an_intended_difference_takes_one_line_for_all_services_and_families() -> None:
    text = table(example_report.realistic())
    (line,) = [line for line in text.splitlines() if line.startswith("unallocated address")]

    assert " ".join(line.split()) == "unallocated address 4 Services 88 cluster IPs that no Service has are not dropped"


def test_uninterpreted_rules_are_named_with_side_chain_line_and_text() -> None:
    text = table(example_report.realistic())
    (line,) = [line for line in text.splitlines() if "--algo bm" in line]

    assert line == (
        "kube-proxy (iptables)  IPv4      17  filter FORWARD  "
        "-A FORWARD -p tcp -m string --string 'GET /admin' --algo bm --to 65535 -j REJECT"
    )


def test_without_a_terminal_it_is_plain_and_the_same_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = table(example_report.realistic())
    for name, value in (("FORCE_COLOR", "1"), ("COLUMNS", "40"), ("TERM", "xterm-256color")):
        monkeypatch.setenv(name, value)

    assert table(example_report.realistic()) == expected
    assert "\x1b" not in expected


@pytest.mark.parametrize("width", [60, 80, 200])
def test_in_a_terminal_it_is_folded_and_nothing_is_lost(width: int) -> None:
    narrow, wide = table(example_report.realistic(), width=width), table(example_report.realistic())

    assert max(cell_len(line) for line in narrow.splitlines()) <= width
    assert Counter("".join(narrow.split())) == Counter("".join(wide.split()))


def test_colours_are_there_when_they_are_asked_for() -> None:
    assert "\x1b[1;31mClients would see a difference" in table(example_report.realistic(), width=100, colours=True)


def test_others_words_do_not_control_a_terminal_and_are_whole() -> None:
    text = table(hostile())

    assert not any(ord(character) < 32 and character != "\n" for character in text)
    assert "\u202e" not in text
    assert text.encode()
    for harm in HARM:
        assert visible(harm) in text
