"""Takes a rule's words apart: its header, its matches and its target, each with its options and their values.

Options may stand anywhere behind the match that they belong to, as kube-proxy's ``-m tcp -p tcp -d ... --dport`` do.
How many values an option has is in ``VALUES``; one that is not there has all words up to the next option.
"""

from collections.abc import Mapping
from itertools import takewhile
from typing import NamedTuple

from knft.errors import CaptureError
from knft.interpret.iptables.words import plain, quoted, spelled

_LONG = {
    "--source": "-s",
    "--src": "-s",
    "--destination": "-d",
    "--dst": "-d",
    "--protocol": "-p",
    "--proto": "-p",
    "--in-interface": "-i",
    "--out-interface": "-o",
    "--fragment": "-f",
    "--match": "-m",
    "--jump": "-j",
    "--goto": "-g",
    "--set-counters": "-c",
    "--ipv4": "-4",
    "--ipv6": "-6",
}
_OF_PORTS = {"--source-port": "--sport", "--destination-port": "--dport"}
_OF_MULTIPORT = {"--source-ports": "--sports", "--destination-ports": "--dports"}
_SAME = {"tcp": _OF_PORTS, "udp": _OF_PORTS, "sctp": _OF_PORTS, "dccp": _OF_PORTS, "multiport": _OF_MULTIPORT}
"""Other names of a match's options."""

_HEADER = {"-s": 1, "-d": 1, "-p": 1, "-i": 1, "-o": 1, "-f": 0}
_ORDER = "-s-d-i-o-p-f"
_IGNORED = {"-c": 2, "-4": 0, "-6": 0}

_PORTS = {"--sport": 1, "--dport": 1}
VALUES: Mapping[str, Mapping[str, int]] = {
    "comment": {"--comment": 1},
    "tcp": {**_PORTS, "--tcp-flags": 2, "--syn": 0, "--tcp-option": 1},
    "udp": _PORTS,
    "sctp": {**_PORTS, "--chunk-types": 2},
    "dccp": _PORTS,
    "udplite": _PORTS,
    "multiport": {"--ports": 1, "--sports": 1, "--dports": 1},
    "icmp": {"--icmp-type": 1},
    "icmp6": {"--icmpv6-type": 1},
    "mark": {"--mark": 1},
    "connmark": {"--mark": 1},
    "state": {"--state": 1},
    "conntrack": {
        **dict.fromkeys(("--ctstate", "--ctproto", "--ctstatus", "--ctexpire", "--ctdir"), 1),
        **{f"--ct{way}{end}{port}": 1 for way in ("orig", "repl") for end in ("src", "dst") for port in ("", "port")},
    },
    "addrtype": {"--src-type": 1, "--dst-type": 1, "--limit-iface-in": 0, "--limit-iface-out": 0},
    "statistic": {"--mode": 1, "--probability": 1, "--every": 1, "--packet": 1},
    "recent": {
        **dict.fromkeys(("--name", "--seconds", "--hitcount", "--mask"), 1),
        **dict.fromkeys(("--set", "--rcheck", "--update", "--remove", "--reap", "--rttl", "--rsource", "--rdest"), 0),
    },
    "set": {
        "--match-set": 2,
        **dict.fromkeys(("--return-nomatch", "--update-counters", "--update-subcounters"), 0),
        **{f"--{what}-{how}": 1 for what in ("packets", "bytes") for how in ("eq", "lt", "gt")},
    },
    "physdev": {
        **dict.fromkeys(("--physdev-in", "--physdev-out"), 1),
        **dict.fromkeys(("--physdev-is-in", "--physdev-is-out", "--physdev-is-bridged"), 0),
    },
    "iprange": {"--src-range": 1, "--dst-range": 1},
    "nfacct": {"--nfacct-name": 1},
    "pkttype": {"--pkt-type": 1},
    "rpfilter": dict.fromkeys(("--loose", "--validmark", "--accept-local", "--invert"), 0),
    "ipvs": {
        "--ipvs": 0,
        **dict.fromkeys(("--vproto", "--vaddr", "--vport", "--vdir", "--vmethod", "--vportctl"), 1),
    },
    "MARK": dict.fromkeys(("--set-mark", "--set-xmark", "--or-mark", "--and-mark", "--xor-mark"), 1),
    "DNAT": {"--to-destination": 1, "--random": 0, "--persistent": 0},
    "SNAT": {"--to-source": 1, "--random": 0, "--random-fully": 0, "--persistent": 0},
    "MASQUERADE": {"--to-ports": 1, "--random": 0, "--random-fully": 0},
    "REDIRECT": {"--to-ports": 1, "--random": 0},
    "REJECT": {"--reject-with": 1},
    "SET": {
        **dict.fromkeys(("--add-set", "--del-set", "--map-set"), 2),
        **dict.fromkeys(("--exist", "--map-mark", "--map-prio", "--map-queue"), 0),
        "--timeout": 1,
    },
}
"""How many values the options of matches and targets have."""

_IMPLIED = {
    "tcp": "tcp",
    "6": "tcp",
    "udp": "udp",
    "17": "udp",
    "sctp": "sctp",
    "132": "sctp",
    "dccp": "dccp",
    "udplite": "udplite",
    "icmp": "icmp",
    "icmpv6": "icmp6",
    "ipv6-icmp": "icmp6",
}
"""The match that a protocol brings along."""


class Option(NamedTuple):
    """An option as it stands, its name in the form that is printed."""

    inverted: bool
    name: str
    values: tuple[str, ...]

    @property
    def text(self) -> str:
        """The option as a line has it."""
        return spelled((*("!",) * self.inverted, self.name, *self.values))


class Part(NamedTuple):
    """A match or a target with its options; ``jump`` is ``-m``, ``-j`` or ``-g``."""

    jump: str
    name: str
    options: tuple[Option, ...]

    @property
    def text(self) -> str:
        """The part as a line has it."""
        return " ".join((self.jump, self.name, *(option.text for option in self.options)))


class Arguments(NamedTuple):
    """A rule."""

    header: tuple[Option, ...]
    matches: tuple[Part, ...]
    target: Part | None
    comment: str


class _Open(NamedTuple):
    """A part to which options are still added."""

    jump: str
    name: str
    options: list[Option]


def arguments(words: list[str]) -> Arguments:
    """Take apart what follows the chain's name in a rule; raise CaptureError where it is no rule."""
    return _Splitter(words).split()


class _Splitter:
    """Goes through a rule's words once."""

    def __init__(self, words: list[str]) -> None:
        self._words = words
        self._at = 0
        self._header: list[Option] = []
        self._parts: list[_Open] = []

    def split(self) -> Arguments:
        words = self._words
        while self._at < len(words):
            word = words[self._at]
            self._at += 1
            inverted = word == "!"
            self._option(self._take("an option", 1)[0] if inverted else word, inverted=inverted)
        matches = [part for part in self._parts if part.jump == "-m"]
        targets = [part for part in self._parts if part.jump != "-m"]
        if len(targets) > 1:
            msg = f"two targets, {targets[0].name} and {targets[1].name}"
            raise CaptureError(msg)
        return Arguments(
            tuple(sorted(self._header, key=_printed_first)),
            tuple([Part(part.jump, part.name, tuple(part.options)) for part in matches if not _is_comment(part)]),
            Part(targets[0].jump, targets[0].name, tuple(targets[0].options)) if targets else None,
            _comment(matches),
        )

    def _take(self, name: str, count: int) -> tuple[str, ...]:
        taken = tuple(self._words[self._at : self._at + count])
        if len(taken) < count:
            msg = f"the line ends where {name} is needed"
            raise CaptureError(msg)
        self._at += count
        return taken

    def _option(self, word: str, *, inverted: bool) -> None:
        name = _LONG.get(word, word)
        if name in _HEADER:
            self._header.append(Option(inverted, name, self._take(f"a value of {name}", _HEADER[name])))
        elif name in ("-m", "-j", "-g"):
            if inverted:
                msg = f"! before {name}"
                raise CaptureError(msg)
            self._parts.append(_Open(name, plain(self._take(f"a name for {name}", 1)[0]), []))
        elif name in _IGNORED:
            self._take(f"a value of {name}", _IGNORED[name])
        else:
            self._of_part(name, inverted=inverted)

    def _of_part(self, word: str, *, inverted: bool) -> None:
        if not word.startswith(("-", "[")):  # iptables-save remarks on what it cannot print: [unsupported revision]
            msg = f"{quoted(word)} belongs to no option"
            raise CaptureError(msg)
        name, has_value, value = word.partition("=") if word.startswith("--") else (word, "", "")
        owner = self._owner(name)
        name = _SAME.get(owner.name, {}).get(name, name)
        count = VALUES.get(owner.name, {}).get(name)
        if has_value:
            values: tuple[str, ...] = (value, *self._take(f"a value of {name}", max((count or 1) - 1, 0)))
        else:
            values = self._values() if count is None else self._take(f"a value of {name}", count)
        owner.options.append(Option(inverted, name, values))

    def _owner(self, name: str) -> _Open:
        """Return the part that an option belongs to: the last that knows it, or the last of which nothing is known."""
        for part in reversed(self._parts):
            if _SAME.get(part.name, {}).get(name, name) in VALUES.get(part.name, {}):
                return part
        for protocol in self._protocols():
            known = VALUES[protocol]
            if _SAME.get(protocol, {}).get(name, name) in known:
                self._parts.append(_Open("-m", protocol, []))
                return self._parts[-1]
        if not self._parts:
            msg = f"{quoted(name)} is no option of a rule, and follows no match"
            raise CaptureError(msg)
        return next((part for part in reversed(self._parts) if part.name not in VALUES), self._parts[-1])

    def _protocols(self) -> list[str]:
        values = [option.values[0].lower() for option in self._header if option.name == "-p"]
        return [_IMPLIED[value] for value in values if value in _IMPLIED]

    def _values(self) -> tuple[str, ...]:
        """Take all words up to the next option."""
        values = tuple(takewhile(lambda word: word != "!" and not word.startswith("-"), self._words[self._at :]))
        self._at += len(values)
        return values


def _printed_first(option: Option) -> int:
    """Sort options of the header as iptables-save prints them: rules that say the same are the same."""
    return _ORDER.find(option.name)


def _is_comment(part: _Open) -> bool:
    return part.name == "comment" and all(option.name == "--comment" for option in part.options)


def _comment(matches: list[_Open]) -> str:
    for part in matches:
        if part.name == "comment":
            for option in part.options:
                if option.values:
                    return plain(option.values[0])
    return ""
