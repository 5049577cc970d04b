"""Formats the nat table like ``iptables -t nat -nL``, for comparison with the listing of the document in ``from``.

In a section ``listing``, a line that begins with ``-`` is only in the document, a line with ``+`` only in the rules,
and all others are in both. Chains without rules may be missing.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

_HEADINGS = "target     prot opt source               destination"
_TEXTS = {
    "-m": (1, ""),
    "--comment": (1, "/* {0} */"),
    "--match-set": (2, "match-set {0} {1}"),
    "--physdev-is-in": (0, "PHYSDEV match {not_}--physdev-is-in"),
    "--src-type": (1, "ADDRTYPE match src-type {no}{0}"),
    "--dst-type": (1, "ADDRTYPE match dst-type {no}{0}"),
    "--mark": (1, "mark match {not_}{0}"),
    "--or-mark": (1, "MARK or {0}"),
    "--xor-mark": (1, "MARK xor {0}"),
    "--random-fully": (0, "random-fully"),
}
_COLUMNS = {"-p": (1, "all"), "-s": (1, "0.0.0.0/0"), "-d": (1, "0.0.0.0/0"), "-j": (1, "")}

Listing = dict[str, list[str]]


def listed(restore: dict[str, Any], jumps: dict[str, Any]) -> list[str]:
    """Return the nat table of the parts iptables-restore and jumps, given as JSON."""
    chains: Listing = {}
    for jump in jumps["jumps"]:
        if jump["table"] == "nat":
            arguments = ["--comment", jump["comment"], "-j", jump["target"]]
            chains.setdefault(jump["source"], []).append(_row(arguments))
    for table in restore["tables"]:
        for line in table["lines"] if table["name"] == "nat" else ():
            chains.setdefault(line["chain"], []).append(_row(line["arguments"]))
    return [line for chain, rows in chains.items() for line in (f"Chain {chain}", _HEADINGS, *rows)]


def side(lines: Iterable[str], only: str) -> list[str]:
    """Return one side of a section, ``-`` or ``+``."""
    return [line[1:].strip() for line in lines if line[0] in f" {only}"]


def chains(lines: Iterable[str]) -> Listing:
    """Return the rules of each chain that has any, with single blanks between words."""
    listing: Listing = {}
    rows: list[str] = []
    for line in lines:
        words = line.split()
        if words[0] == "Chain":
            rows = listing.setdefault(words[1], [])
        elif words != _HEADINGS.split():
            rows.append(" ".join(words))
    return {chain: rows for chain, rows in listing.items() if rows}


def _row(arguments: list[str]) -> str:
    columns = {option: default for option, (_, default) in _COLUMNS.items()}
    texts = []
    for option, values, inverted in _options(arguments):
        if option in columns:
            columns[option] = "!" * inverted + values[0]
        else:
            text = _TEXTS[option][1].format(*values, no="!" * inverted, not_="! " * inverted)
            texts.append(re.sub(r"\b0x0+", "0x", text))
    # Comments of rules with sets differ between versions, and are not compared.
    matches_set = any(text.startswith("match-set") for text in texts)
    shown = [text for text in texts if text and not (matches_set and text.startswith("/*"))]
    return " ".join((columns["-j"], columns["-p"], "--", columns["-s"], columns["-d"], *shown))


def _options(arguments: list[str]) -> Iterator[tuple[str, list[str], bool]]:
    """Yield each option, its values, and whether ``!`` negates it."""
    words = iter(arguments)
    for word in words:
        option = next(words) if word == "!" else word
        count, _ = (_TEXTS | _COLUMNS)[option]
        yield option, [next(words) for _ in range(count)], word == "!"
