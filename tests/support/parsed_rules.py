"""Parses iptables rules in a canonical form, to compare iptables-restore input with iptables-save output.

The programs print options in their own order, add implied options, and format numbers and networks differently.
Unknown syntax is an error: a partly parsed rule could equal a different rule.
"""

import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from knft.families import Family

Options = frozenset[tuple[str, str]]
"""Options and their values; a negated option has ``!`` in front."""


@dataclass(frozen=True)
class ParsedRule:
    """A rule in canonical form: header conditions, matches in order, the target, and the target's options."""

    header: Options
    matches: tuple[tuple[str, Options], ...]
    target: str | None
    target_options: Options


Chains = dict[str, tuple[ParsedRule, ...]]

_WORD = re.compile(r'(?<!\S)(?:"((?:\\.|[^"\\])*)"|([^\s"]+))(?!\S)')


def parse_tables(text: str, family: Family) -> dict[str, Chains]:
    """Return the chains of every table, including built-in ones, with their rules in order; raise ValueError.

    The result of concatenated inputs is the state after all of them have been restored in order.
    """
    tables: dict[str, Chains] = {}
    chains: Chains | None = None
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        if chains is None:
            chains = tables.setdefault(_table_name(line), {})
        elif line == "COMMIT":
            chains = None
        else:
            _read_line(line, chains, family)
    return tables


def _table_name(line: str) -> str:
    if not line.startswith("*"):
        msg = f"unexpected line {line!r}"
        raise ValueError(msg)
    return line[1:]


def _read_line(line: str, chains: Chains, family: Family) -> None:
    action, _, rest = line.partition(" ")
    if action.startswith(":"):
        chains[action[1:]] = ()
    elif action == "-X":
        if chains.pop(rest):
            msg = f"chain {rest!r} is deleted but has rules"
            raise ValueError(msg)
    elif action == "-A":
        chain, *words = split_words(rest)
        chains[chain] = (*chains[chain], parse_rule(words, family))
    else:
        msg = f"unexpected line {line!r}"
        raise ValueError(msg)


def split_words(line: str) -> list[str]:
    """Split a line into words as the programs do; raise ValueError.

    Unlike in a shell, only double quotes quote, and a backslash within them escapes any character.
    """
    if _WORD.sub("", line).strip():
        msg = f"invalid quotes in {line!r}"
        raise ValueError(msg)
    return [re.sub(r"\\(.)", r"\1", quoted) or plain for quoted, plain in _WORD.findall(line)]


def parse_rule(words: list[str], family: Family) -> ParsedRule:
    """Parse the arguments of a rule; raise ValueError for an unknown one."""
    header: set[tuple[str, str]] = set()
    parts: list[tuple[str, set[tuple[str, str]]]] = []
    matches = 0
    remaining = iter(words)
    for negation, option in _options(remaining):
        if option in ("-m", "-j"):
            name = next(remaining)
            parts.append((name, set(_IMPLIED.get(name, {}).get(family, ()))))
            matches += option == "-m"
        elif option in _HEADER:
            header.add((negation + option, _HEADER[option](next(remaining))))
        else:
            name, options = parts[-1] if parts else ("", set())
            read = _read(name, option, remaining)
            options -= {implied for implied in options if implied[0] == read[0]}
            options.add((negation + read[0], read[1]))
    if len(parts) > matches + 1:
        msg = f"two targets: {words}"
        raise ValueError(msg)
    target, of_target = parts[matches] if len(parts) > matches else (None, set())
    read_matches = tuple((name, frozenset(options)) for name, options in parts[:matches])
    return ParsedRule(frozenset(header - _MATCH_ALL), read_matches, target, frozenset(of_target))


def _options(words: Iterator[str]) -> Iterator[tuple[str, str]]:
    """Yield each option with its negation, ``!`` or "" before it."""
    for word in words:
        yield ("!", next(words)) if word == "!" else ("", word)


def _read(name: str, option: str, words: Iterator[str]) -> tuple[str, str]:
    """Return an option of a match or target in printed form, and its value; raise ValueError."""
    options = _KNOWN_OPTIONS.get(name, {})
    if option not in options:
        msg = f"unknown option {option!r} of {name or 'the header'}"
        raise ValueError(msg)
    printed, *readers = options[option]
    return printed, " ".join([read(next(words)) for read in readers])


def _network(text: str) -> str:
    return str(ipaddress.ip_network(text))


def _number(text: str) -> str:
    return str(int(text))


def _unchanged(text: str) -> str:
    return text


def _masked(text: str) -> str:
    value, _, mask = text.partition("/")
    return f"{int(value, 0):#x}/{int(mask or '0xffffffff', 0):#x}"


def _sorted_words(text: str) -> str:
    return ",".join(sorted(text.split(",")))


def _probability(text: str) -> str:
    """Return a probability in the kernel's unit, 1/2^31."""
    return str(round(float(text) * (1 << 31)))


def _first_255(text: str) -> str:
    """Return the first 255 characters of a comment; the programs silently truncate the rest."""
    return text[:255]


_Reading = Mapping[str, tuple[str, *tuple[Callable[[str], str], ...]]]
_HEADER: Mapping[str, Callable[[str], str]] = {"-s": _network, "-d": _network, "-p": _unchanged, "-i": _unchanged}
_MATCH_ALL = frozenset((option, network) for option in ("-s", "-d") for network in ("0.0.0.0/0", "::/0"))
"""Conditions that match every packet; the programs do not print them."""

_PORTS: _Reading = {"--dport": ("--dport", _number)}
_KNOWN_OPTIONS: Mapping[str, _Reading] = {
    "tcp": _PORTS,
    "udp": _PORTS,
    "sctp": _PORTS,
    "comment": {"--comment": ("--comment", _first_255)},
    "mark": {"--mark": ("--mark", _masked)},
    "addrtype": {option: (option, _unchanged) for option in ("--src-type", "--dst-type")},
    "conntrack": {"--ctstate": ("--ctstate", _sorted_words)},
    "statistic": {"--mode": ("--mode", _unchanged), "--probability": ("--probability", _probability)},
    "recent": {
        **{option: (option,) for option in ("--set", "--rcheck", "--reap", "--rsource")},
        **{option: (option, _unchanged) for option in ("--name", "--mask")},
        "--seconds": ("--seconds", _number),
    },
    "set": {"--match-set": ("--match-set", _unchanged, _unchanged)},
    "physdev": {"--physdev-is-in": ("--physdev-is-in",)},
    "MARK": {
        "--or-mark": ("--set-xmark", lambda text: _masked(f"{text}/{text}")),
        "--xor-mark": ("--set-xmark", lambda text: _masked(f"{text}/0")),
        "--set-xmark": ("--set-xmark", _masked),
    },
    "MASQUERADE": {"--random-fully": ("--random-fully",)},
    "DNAT": {"--to-destination": ("--to-destination", _unchanged)},
    "REJECT": {"--reject-with": ("--reject-with", _unchanged)},
}
"""The options of each match and target, their printed form, and the parsers of their values."""

_IMPLIED: Mapping[str, Mapping[Family, tuple[tuple[str, str], ...]]] = {
    "recent": {
        Family.IPV4: (("--mask", "255.255.255.255"), ("--rsource", "")),
        Family.IPV6: (("--mask", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"), ("--rsource", "")),
    },
    "REJECT": {
        Family.IPV4: (("--reject-with", "icmp-port-unreachable"),),
        Family.IPV6: (("--reject-with", "icmp6-port-unreachable"),),
    },
}
"""Defaults that the programs print."""
