"""The HTML of the page; test_browser tests the page in a browser."""

import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest
from msgspec import structs

from knft.interpret.compare.findings import Counts
from knft.interpret.compare.report import FamilyReport, Report
from knft.present import html, page
from knft.present.page import example_packet, split_rule
from tests.present import example_report
from tests.present.hostile_report import HOSTILE_TEXTS, hostile_report

_ELEMENTS = frozenset(
    re.findall(
        r"\w+",
        "html head meta title style body header main footer section div p b i mark span small code h1 h2 h3 ul ol li "
        "dl dt dd svg circle path table thead tbody tr th td details summary input select option button output script",
    )
)


class PageParser(HTMLParser):
    """The elements, attributes and text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.words.append(data)


@pytest.mark.parametrize("name", ["realistic", "equal", "expected", "undecided"])
def test_page_loads_no_other_resource(name: str) -> None:
    parser = PageParser(html(getattr(example_report, name)()))

    loading_attributes = {"src", "href", "srcset", "data", "action", "style", "background", "poster"}
    assert not {key for key, _ in parser.attributes if key in loading_attributes or key.startswith("on")}
    assert set(parser.elements) <= _ELEMENTS
    assert parser.elements.count("script") == parser.elements.count("style") == 1


def test_untrusted_text_adds_no_elements_or_attributes() -> None:
    ordinary, hostile_page = PageParser(html(example_report.realistic())), PageParser(html(hostile_report()))

    assert set(hostile_page.elements) <= _ELEMENTS
    assert {key for key, _ in hostile_page.attributes} <= {key for key, _ in ordinary.attributes}
    assert hostile_page.elements.count("script") == hostile_page.elements.count("style") == 1


def test_untrusted_text_is_shown_with_escapes() -> None:
    text = html(hostile_report())
    words = "".join(PageParser(text).words)

    assert text.encode()
    assert "\u202e" not in text
    assert "{{ 7 * 7 }}{% raw %}" in words
    assert r"\x1b[2J\x1b]0;owned\x07\r\n\x00\x9b31m" in words
    assert r"\u202etxt.exe\u200b\u2028" in words
    assert r"\udc80 not UTF-8" in words
    assert "\N{PILE OF POO}" in words


def test_long_text_is_truncated_with_a_notice() -> None:
    words = "".join(PageParser(html(hostile_report())).words)

    assert len(HOSTILE_TEXTS[-1]) == 5_000
    assert f"{HOSTILE_TEXTS[-1][:2000]}… (3 000 more characters)" in words


def test_content_security_policy_allows_only_own_style_and_script() -> None:
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', html(example_report.realistic()))

    assert re.fullmatch(
        r"default-src 'none'; style-src 'sha256-[\w+/=]{44}'; script-src 'sha256-[\w+/=]{44}'; "
        r"base-uri 'none'; form-action 'none'",
        policy,
    )


@pytest.mark.parametrize(
    ("report", "kind"),
    [
        (example_report.realistic(), "different"),
        (example_report.equal(), "equal"),
        (example_report.expected(), "equal"),
        (example_report.undecided(), "undecided"),
        (example_report.losing(), "loss"),
    ],
)
def test_header_has_the_class_of_the_result(report: Report, kind: str) -> None:
    assert f'<header class="verdict {kind}">' in html(report)


def test_page_with_5000_groups_shows_all_in_less_than_5_mib() -> None:
    text = html(example_report.large(5000))

    assert text.count('<tbody class="row') == 5000
    assert "left out to keep this page small: -o json has all" in text
    assert len(text.encode()) < 5 << 20


def test_first_example_of_each_row_gets_space_for_rules_before_any_second_example(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    report = example_report.large(10)
    example = report.families[0].groups[0].examples[0]
    monkeypatch.setattr(
        page, "MAX_RULES_SIZE", 15 * (page._example_size(example) + len(report.left_label + report.right_label))
    )

    text = html(report)

    assert text.count("<details><summary><span") == 10
    assert text.count('<p class="next">') == 5
    assert "the rules of 15 examples are left out" in text


def test_rows_beyond_the_limit_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "MAX_ROWS", 4)

    text = html(example_report.realistic())

    assert text.count('<tbody class="row') == 4
    assert "4 more rows of 8 are left out: -o json has all" in text


@pytest.mark.parametrize(
    ("rule", "chain", "line", "text"),
    [
        ("nat KUBE-SERVICES: line 96: -A a: b", "nat KUBE-SERVICES", "line 96", "-A a: b"),
        ("ip knft services: ip daddr vmap @x", "ip knft services", "", "ip daddr vmap @x"),
        ("no colon", "", "", "no colon"),
    ],
)
def test_rule_of_an_example_is_split(rule: str, chain: str, line: str, text: str) -> None:
    assert split_rule(rule) == page.ExampleRule(chain, line, text)


def test_json_loads_neither_rich_nor_jinja2() -> None:
    code = (
        "import sys; from knft import present; from knft.interpret.compare.report import Report; "
        "present.json(Report('a', 'b', [])); print({'rich', 'jinja2'} & sys.modules.keys())"
    )

    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert completed.stdout == "set()\n"


def test_page_with_a_loss_says_so_and_names_its_services_once_at_the_top() -> None:
    text = html(example_report.losing())
    top, _, rest = text.partition('<section id="expected">')

    assert '<p class="all-clear loss">' in top
    assert "All packets have the same outcome on both sides, except for the expected differences below" in top
    assert top.count("web:http") + top.count('<span class="ns">default/</span>web</span>') == 1
    assert rest.count('<tbody class="once">') == rest.count('<p class="loses">') == 1
    assert "lasses" not in re.sub(r"<(style|script)>.*?</\1>", "", text, flags=re.DOTALL)


def test_sides_have_short_names() -> None:
    report = example_report.realistic()

    text = html(report)

    assert "</span> kube-proxy (captured): clients see</th>" in text
    assert text.count(report.left_name) == 1


def test_row_that_one_side_serves_has_no_green_dot() -> None:
    text = html(example_report.realistic())

    assert len(re.findall(r'<tbody class="row once" data-cause="verdict"', text)) == text.count('data-cause="verdict"')
    assert '<tbody class="row" data-cause="endpoints"' in text


def test_untranslated_packets_have_no_green_dot_where_the_other_side_reaches_an_endpoint() -> None:
    untranslated = example_report.example((example_report.delivered(""),), (example_report.delivered("10.0.0.1:80"),))
    outcomes = ("is delivered, not translated", "reaches 10.0.0.1:80")
    group = example_report.group("verdict", "shop/web", *outcomes, [untranslated])

    text = html(Report("a", "b", [FamilyReport("IPv4", Counts(different=1), [group])]))

    assert text.count('<tbody class="row once"') == text.count('<div class="sides once">') == 1


def test_row_of_packets_that_are_no_longer_served_says_so() -> None:
    text = html(example_report.realistic())

    assert text.count('<span class="unreached">no longer reached</span>') == 2
    assert text.index('<span class="unreached">') < text.index("is delivered, not translated</td>")
    words = "".join(PageParser(text).words)
    assert "Clients would see a difference at 5 Services, and some would no longer reach 1 of them" in words


def test_example_is_one_packet_with_the_flags_of_trace() -> None:
    text = html(example_report.realistic())
    words = " ".join("".join(PageParser(text).words).split())

    assert "2001:db8:ffff::7 → [fd00:96::e07]:80/tcp in-interface eth0" in words
    assert "for this packet: --from=2001:db8:ffff::7 '--to=[fd00:96::e07]:80/tcp' --in-interface=eth0" in words
    assert "all packets of its kind: the network from any in eth0 → fd00:96::e07 port 80/tcp" in words


def test_example_without_a_packet_is_described() -> None:
    example = structs.replace(example_report.realistic().families[0].groups[0].examples[0], trace=())
    group = example_report.group("verdict", "shop/web", "reaches 10.0.0.1:80", "is rejected", [example])

    text = html(Report("a", "b", [FamilyReport("IPv4", Counts(different=1), [group])]))

    assert example_packet(example) is None
    assert 'the network from any in eth0 <span class="to">→</span> 10.96.14.7 port 80/tcp' in text
    assert '<p class="flags">' not in text


def test_each_alternative_outcome_is_on_a_line() -> None:
    text = html(example_report.crowded(3))

    assert "]:8080 (<mark>1/2</mark>);\nreaches <mark>10.244.1.1</mark>:8080" in text


def test_description_of_the_comparison_comes_after_the_differences() -> None:
    text = html(example_report.realistic())
    parts = ("other differences</dt>", "Different verdict", 'id="expected"', "This comparison", "objects.yaml")

    assert [text.index(part) for part in parts] == sorted(text.index(part) for part in parts)


def test_firewall_that_one_side_loses_has_no_green_outcome() -> None:
    report = example_report.expected()
    blocked = example_report.example((example_report.DROPPED,), (example_report.delivered("10.0.0.1:80"),))
    report.families[0].groups = [structs.replace(report.families[0].groups[0], examples=[blocked])]

    text = html(report)

    assert text.count('<div class="sides once">') == 1
    assert '<div class="sides">' not in text
