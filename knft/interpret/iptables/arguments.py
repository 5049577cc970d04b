"""Parses the words of a rule into its header, its matches and its target, each with its options.

An option may come anywhere after its match, as in kube-proxy's ``-m tcp -p tcp -d ... --dport``.
``OPTION_VALUE_COUNTS`` has the number of values of each option; any other option takes all words up to the next one.
"""

from collections.abc import Mapping
from itertools import takewhile
from typing import NamedTuple

from knft.errors import CaptureError
from knft.interpret.errors import abbreviated
from knft.interpret.iptables.quoting import join_words, unquote

_SHORT_NAMES = {
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
_PORT_ALIASES = {"--source-port": "--sport", "--destination-port": "--dport"}
_MULTIPORT_ALIASES = {"--source-ports": "--sports", "--destination-ports": "--dports"}
_ALIASES = {
    "tcp": _PORT_ALIASES,
    "udp": _PORT_ALIASES,
    "sctp": _PORT_ALIASES,
    "dccp": _PORT_ALIASES,
    "multiport": _MULTIPORT_ALIASES,
}
"""Other names of options, by match."""

_HEADER = {"-s": 1, "-d": 1, "-p": 1, "-i": 1, "-o": 1, "-f": 0}
_HEADER_ORDER = "-s-d-i-o-p-f"
_IGNORED = {"-c": 2, "-4": 0, "-6": 0}

_PORTS = {"--sport": 1, "--dport": 1}
OPTION_VALUE_COUNTS: Mapping[str, Mapping[str, int]] = {
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
        **{
            f"--ct{direction}{end}{port}": 1
            for direction in ("orig", "repl")
            for end in ("src", "dst")
            for port in ("", "port")
        },
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
        **{f"--{counter}-{operator}": 1 for counter in ("packets", "bytes") for operator in ("eq", "lt", "gt")},
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
"""The number of values of each option, by match or target."""

_IMPLIED_MATCHES = {
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
"""The match that iptables loads for ``-p``, by protocol."""


class Option(NamedTuple):
    """An option of a rule; ``name`` is in the form that iptables-save prints."""

    inverted: bool
    name: str
    values: tuple[str, ...]

    @property
    def text(self) -> str:
        """The option as in a line of the capture."""
        return join_words((*("!",) * self.inverted, self.name, *self.values))


class Extension(NamedTuple):
    """A match or a target (iptables-extensions(8)) with its options; ``flag`` is ``-m``, ``-j`` or ``-g``."""

    flag: str
    name: str
    options: tuple[Option, ...]

    @property
    def text(self) -> str:
        """The match or target as in a line of the capture."""
        return " ".join((self.flag, self.name, *(option.text for option in self.options)))


class RuleArguments(NamedTuple):
    """The arguments of a rule: header options, matches, the target, and the comment."""

    header: tuple[Option, ...]
    matches: tuple[Extension, ...]
    target: Extension | None
    comment: str


class _OpenExtension(NamedTuple):
    """An extension while its options are parsed."""

    flag: str
    name: str
    options: list[Option]


def parse_arguments(words: list[str]) -> RuleArguments:
    """Return the arguments of a rule, given the words after its chain; raise CaptureError if they are invalid."""
    return _Parser(words).parse()


class _Parser:
    """Parses the words of one rule."""

    def __init__(self, words: list[str]) -> None:
        self._words = words
        self._position = 0
        self._header: list[Option] = []
        self._extensions: list[_OpenExtension] = []

    def parse(self) -> RuleArguments:
        words = self._words
        while self._position < len(words):
            word = words[self._position]
            self._position += 1
            inverted = word == "!"
            self._read_option(self._next_words("an option", 1)[0] if inverted else word, inverted=inverted)
        matches = [extension for extension in self._extensions if extension.flag == "-m"]
        targets = [extension for extension in self._extensions if extension.flag != "-m"]
        if len(targets) > 1:
            msg = f"two targets, {targets[0].name} and {targets[1].name}"
            raise CaptureError(msg)
        return RuleArguments(
            tuple(sorted(self._header, key=_print_order)),
            tuple(
                [
                    Extension(extension.flag, extension.name, tuple(extension.options))
                    for extension in matches
                    if not _is_comment(extension)
                ]
            ),
            Extension(targets[0].flag, targets[0].name, tuple(targets[0].options)) if targets else None,
            _comment(matches),
        )

    def _next_words(self, name: str, count: int) -> tuple[str, ...]:
        words = tuple(self._words[self._position : self._position + count])
        if len(words) < count:
            msg = f"expected {name} at the end of the line"
            raise CaptureError(msg)
        self._position += count
        return words

    def _read_option(self, word: str, *, inverted: bool) -> None:
        name = _SHORT_NAMES.get(word, word)
        if name in _HEADER:
            self._header.append(Option(inverted, name, self._next_words(f"a value for {name}", _HEADER[name])))
        elif name in ("-m", "-j", "-g"):
            if inverted:
                msg = f"! is not allowed before {name}"
                raise CaptureError(msg)
            self._extensions.append(_OpenExtension(name, unquote(self._next_words(f"a name for {name}", 1)[0]), []))
        elif name in _IGNORED:
            self._next_words(f"a value for {name}", _IGNORED[name])
        else:
            self._read_extension_option(name, inverted=inverted)

    def _read_extension_option(self, word: str, *, inverted: bool) -> None:
        if not word.startswith(
            ("-", "[")
        ):  # iptables-save prints [unsupported revision] if it does not know an extension
            msg = f"unexpected word {abbreviated(word)}"
            raise CaptureError(msg)
        name, has_value, value = word.partition("=") if word.startswith("--") else (word, "", "")
        owner = self._owner(name)
        name = _ALIASES.get(owner.name, {}).get(name, name)
        count = OPTION_VALUE_COUNTS.get(owner.name, {}).get(name)
        if has_value:
            values: tuple[str, ...] = (value, *self._next_words(f"a value for {name}", max((count or 1) - 1, 0)))
        else:
            values = self._words_to_next_option() if count is None else self._next_words(f"a value for {name}", count)
        owner.options.append(Option(inverted, name, values))

    def _owner(self, name: str) -> _OpenExtension:
        """Return the match or target of an option: the last one that has it, else the last one with unknown options."""
        for extension in reversed(self._extensions):
            if _ALIASES.get(extension.name, {}).get(name, name) in OPTION_VALUE_COUNTS.get(extension.name, {}):
                return extension
        for protocol in self._protocols():
            options = OPTION_VALUE_COUNTS[protocol]
            if _ALIASES.get(protocol, {}).get(name, name) in options:
                self._extensions.append(_OpenExtension("-m", protocol, []))
                return self._extensions[-1]
        if not self._extensions:
            msg = f"unknown option {abbreviated(name)}, and no match precedes it"
            raise CaptureError(msg)
        return next(
            (extension for extension in reversed(self._extensions) if extension.name not in OPTION_VALUE_COUNTS),
            self._extensions[-1],
        )

    def _protocols(self) -> list[str]:
        values = [option.values[0].lower() for option in self._header if option.name == "-p"]
        return [_IMPLIED_MATCHES[value] for value in values if value in _IMPLIED_MATCHES]

    def _words_to_next_option(self) -> tuple[str, ...]:
        """Return all words up to the next option."""
        values = tuple(takewhile(lambda word: word != "!" and not word.startswith("-"), self._words[self._position :]))
        self._position += len(values)
        return values


def _print_order(option: Option) -> int:
    """Return the position of a header option in the output of iptables-save, so that equal rules compare equal."""
    return _HEADER_ORDER.find(option.name)


def _is_comment(extension: _OpenExtension) -> bool:
    return extension.name == "comment" and all(option.name == "--comment" for option in extension.options)


def _comment(matches: list[_OpenExtension]) -> str:
    for extension in matches:
        if extension.name == "comment":
            for option in extension.options:
                if option.values:
                    return unquote(option.values[0])
    return ""
