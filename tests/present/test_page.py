"""The page as text; what a browser makes of it is in test_browser."""

import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest

from knft.interpret.compare.report import Report
from knft.present import html, page
from knft.present.page import parted
from tests.present import example_report
from tests.present.hostile import HARM, hostile

_ELEMENTS = frozenset(
    re.findall(
        r"\w+",
        "html head meta title style body header main footer section div p b i span small code h1 h2 h4 ul ol li dl dt "
        "dd svg circle path table thead tbody tr th td details summary input select option button output script",
    )
)


class Reader(HTMLParser):
    """Everything that a page consists of."""

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


@pytest.mark.parametrize("name", ["realistic", "equal", "intended", "undecided"])
def test_no_page_refers_to_anything_else(name: str) -> None:
    reader = Reader(html(getattr(example_report, name)()))

    referring = {"src", "href", "srcset", "data", "action", "style", "background", "poster"}
    assert not {key for key, _ in reader.attributes if key in referring or key.startswith("on")}
    assert set(reader.elements) <= _ELEMENTS
    assert reader.elements.count("script") == reader.elements.count("style") == 1


def test_others_words_become_no_elements_and_no_attributes() -> None:
    tame, wild = Reader(html(example_report.realistic())), Reader(html(hostile()))

    assert set(wild.elements) <= _ELEMENTS
    assert {key for key, _ in wild.attributes} <= {key for key, _ in tame.attributes}
    assert wild.elements.count("script") == wild.elements.count("style") == 1


def test_others_words_can_be_read() -> None:
    text = html(hostile())
    words = "".join(Reader(text).words)

    assert text.encode()
    assert "\u202e" not in text
    assert "{{ 7 * 7 }}{% raw %}" in words
    assert r"\x1b[2J\x1b]0;owned\x07\r\n\x00\x9b31m" in words
    assert r"\u202etxt.exe\u200b\u2028" in words
    assert r"\udc80 not UTF-8" in words
    assert "\N{PILE OF POO}" in words


def test_very_long_words_are_cut_and_it_says_so() -> None:
    words = "".join(Reader(html(hostile())).words)

    assert len(HARM[-1]) == 5_000
    assert f"{HARM[-1][:2000]}… (3 000 more characters)" in words


def test_the_policy_allows_our_style_and_script_alone() -> None:
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
        (example_report.intended(), "equal"),
        (example_report.undecided(), "undecided"),
    ],
)
def test_the_headline_has_the_colour_of_the_verdict(report: Report, kind: str) -> None:
    assert f'<header class="verdict {kind}">' in html(report)


def test_a_page_with_5000_groups_has_all_of_them_and_a_few_mib() -> None:
    text = html(example_report.large(5000))

    assert text.count('<tbody class="row"') == 5000
    assert "left out, to keep this page small: -o json has them all" in text
    assert len(text.encode()) < 5 << 20


def test_rules_have_room_for_one_example_of_each_row_before_the_second_of_any(monkeypatch: pytest.MonkeyPatch) -> None:
    report = example_report.large(10)
    example = report.families[0].groups[0].examples[0]
    monkeypatch.setattr(page, "RULES_SIZE", 15 * (page._size(example) + len(report.left + report.right)))

    text = html(report)

    assert text.count("<details>") == 10
    assert text.count('<p class="next">') == 5
    assert "the rules of 15 examples are left out" in text


def test_rows_beyond_the_limit_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "ROWS", 4)

    text = html(example_report.realistic())

    assert text.count('<tbody class="row"') == 4
    assert "4 more rows of 8 are left out here: -o json has them all" in text


@pytest.mark.parametrize(
    ("rule", "chain", "line", "text"),
    [
        ("nat KUBE-SERVICES: line 96: -A a: b", "nat KUBE-SERVICES", "line 96", "-A a: b"),
        ("ip knft services: ip daddr vmap @x", "ip knft services", "", "ip daddr vmap @x"),
        ("no colon", "", "", "no colon"),
    ],
)
def test_a_passed_rule_is_told_apart(rule: str, chain: str, line: str, text: str) -> None:
    assert parted(rule) == page.PassedRule(chain, line, text)


def test_who_asks_for_json_loads_neither_library() -> None:
    code = (
        "import sys; from knft import present; from knft.interpret.compare.report import Report; "
        "present.json(Report('a', 'b', [])); print({'rich', 'jinja2'} & sys.modules.keys())"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "set()\n"
