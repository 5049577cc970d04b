"""Any text is either parsed or rejected with a CaptureError, never with another exception."""

import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knft.errors import CaptureError
from knft.interpret.iptables import read
from knft.interpret.ipvs import read as read_servers
from tests.interpret.iptables.rule_forms import AT_THE_END, BOTH, IPV4, IPV6, OF_SETS

FOLDER = Path(__file__).parent / "captures"
SEEDS = 400
_JUNK = [
    '"',
    "\\",
    "!",
    "-",
    "--",
    " ",
    "\n",
    "0x",
    "/",
    ":",
    ",",
    "[",
    "]",
    "é",
    "\x00",
    "\u2028",
    "9" * 5000,
    "%",
    "*",
]
_VIRTUAL_SERVERS = "-A -t 10.0.0.1:80 -s rr -p 10800\n-a -t 10.0.0.1:80 -r [fd00::1]:8080 -m -w 1\n"


def _captures() -> list[tuple[str, str]]:
    lines = "".join(f"-A INPUT {form.text}\n" for form in (*BOTH, *IPV4, *IPV6, *AT_THE_END, *OF_SETS))
    others = [path.read_text() for path in sorted(FOLDER.glob("*.rules"))]
    sets = "".join(path.read_text() for path in sorted(FOLDER.glob("*.sets")))
    return [(text, sets) for text in (*others, *(f"*filter\n:OTHER -\n{line}\nCOMMIT\n" for line in lines.split("\n")))]


def _mutated(text: str, chance: random.Random) -> str:
    words = text.split(" ")
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(words))
        changes: list[Callable[[], object]] = [
            lambda: words.insert(at, chance.choice(words)),  # noqa: B023 - called at once
            lambda: words.insert(at, chance.choice(_JUNK)),  # noqa: B023
            lambda: words.__setitem__(at, words[at] + chance.choice(_JUNK)),  # noqa: B023
            lambda: words.__setitem__(at, words[at][: chance.randrange(len(words[at]) + 1)]),  # noqa: B023
            lambda: words.__setitem__(at, chance.choice(words)),  # noqa: B023
        ]
        chance.choice(changes)()
    joined = " ".join(words)
    return joined[: chance.randrange(len(joined) + 1)] if chance.random() < 0.1 else joined


@pytest.mark.parametrize("seed", range(4))
def test_mutated_captures(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - to find the same again
    captures = _captures()
    for _ in range(SEEDS):
        text, sets = chance.choice(captures)
        version = chance.choice((4, 6))
        with suppress(CaptureError):
            read(_mutated(text, chance), version, sets)  # type: ignore[arg-type]
        with suppress(CaptureError):
            read(text, version, _mutated(sets, chance))  # type: ignore[arg-type]
        with suppress(CaptureError):
            read_servers(_mutated(_VIRTUAL_SERVERS, chance), version)  # type: ignore[arg-type]


_WORDS = sorted({word for form in (*BOTH, *IPV4, *IPV6, *OF_SETS) for word in form.text.split(" ")} | set(_JUNK))


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(_WORDS) | st.text(max_size=5), max_size=12))
def test_random_rules(words: list[str]) -> None:
    with suppress(CaptureError):
        read(f"*mangle\n:OTHER - [0:0]\n-A OTHER {' '.join(words)}\nCOMMIT\n", 4, "create ips hash:ip\n")


@settings(max_examples=200, deadline=None)
@given(st.text(), st.text())
def test_random_text(save: str, sets: str) -> None:
    with suppress(CaptureError):
        read(save, 6)
    with suppress(CaptureError):
        read("", 4, sets)
    with suppress(CaptureError):
        read(save, 4)
