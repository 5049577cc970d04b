"""What each target does. ``NO_EFFECT`` are those that change nothing of a packet's fate."""

from collections.abc import Callable, Mapping

from knft.interpret.iptables.arguments import Part
from knft.interpret.iptables.errors import NotInterpretedError
from knft.interpret.iptables.lookups import Lookups
from knft.interpret.iptables.numbers import ALL_BITS, masked, number, ports, span
from knft.interpret.iptables.words import plain
from knft.interpret.ranges import NOTHING, Ranges
from knft.interpret.rules import IpVersion, SetMark, Step, Translate, Unknown, Verdict

NO_EFFECT = frozenset(
    (
        "AUDIT",
        "CHECKSUM",
        "CLASSIFY",
        "CONNSECMARK",
        "DSCP",
        "ECN",
        "IDLETIMER",
        "LED",
        "LOG",
        "NFLOG",
        "RATEEST",
        "SECMARK",
        "TCPMSS",
        "TCPOPTSTRIP",
        "TEE",
        "TOS",
        "TRACE",
        "ULOG",
    )
)
"""They write logs, fields that no rule here looks at, or copies."""

_OTHERS = frozenset(
    (
        "CLUSTERIP",
        "CT",
        "DNPT",
        "HL",
        "HMARK",
        "MIRROR",
        "NETMAP",
        "NFQUEUE",
        "NOTRACK",
        "QUEUE",
        "SNPT",
        "SYNPROXY",
        "TPROXY",
        "TTL",
    )
)
"""Known as no chain's names, and not interpreted."""

_VERDICTS = {
    "ACCEPT": Verdict("accept"),
    "DROP": Verdict("drop"),
    "REJECT": Verdict("reject"),
    "RETURN": Verdict("return"),
}

TargetReader = Callable[[Part, Lookups], tuple[Step, ...]]


def read_target(part: Part, lookups: Lookups) -> tuple[Step, ...] | None:
    """Return what a target does, nothing where that has no effect, or None where it is no target but a chain."""
    if part.jump == "-g":
        return None
    verdict = _VERDICTS.get(part.name)
    if verdict is not None:
        return (verdict,)
    if part.name in NO_EFFECT:
        return ()
    read = _TARGETS.get(part.name)
    try:
        if read is not None:
            return read(part, lookups)
    except NotInterpretedError:
        return (Unknown(part.text),)
    # What has options is no chain, whatever its name.
    return (Unknown(part.text),) if part.name in _OTHERS or part.options else None


def _mark(part: Part, _: Lookups) -> tuple[Step, ...]:
    if len(part.options) != 1:
        raise NotInterpretedError(part.name)
    (option,) = part.options
    text = plain(option.values[0]) if option.values else ""
    if option.name in ("--set-mark", "--set-xmark"):
        value, mask = masked(text)
        cleared = mask | value if option.name == "--set-mark" else mask
        return (SetMark(ALL_BITS & ~cleared, value),)
    bits = number(text, ALL_BITS)
    match option.name:
        case "--or-mark":
            return (SetMark(ALL_BITS & ~bits, bits),)
        case "--and-mark":
            return (SetMark(bits, 0),)
        case "--xor-mark":
            return (SetMark(ALL_BITS, bits),)
    raise NotInterpretedError(option.name)


def _destination(part: Part, lookups: Lookups) -> tuple[Step, ...]:
    addresses, new_ports = _to(part, "--to-destination", lookups.version)
    return (Translate("dnat", addresses, new_ports),)


def _source(part: Part, lookups: Lookups) -> tuple[Step, ...]:
    addresses, new_ports = _to(part, "--to-source", lookups.version)
    return (Translate("snat", addresses, new_ports),)


def _masquerade(part: Part, _: Lookups) -> tuple[Step, ...]:
    return (Translate("snat", ports=_to_ports(part), to_self=True),)


def _redirect(part: Part, _: Lookups) -> tuple[Step, ...]:
    return (Translate("dnat", ports=_to_ports(part), to_self=True),)


def _values(part: Part, name: str) -> list[str]:
    """Return the values of an option; all others must be such as change only who gets which of them."""
    if any(option.name not in (name, "--random", "--random-fully", "--persistent") for option in part.options):
        raise NotInterpretedError(part.name)
    return [plain(option.values[0]) for option in part.options if option.name == name]


def _to_ports(part: Part) -> Ranges:
    values = _values(part, "--to-ports")
    if len(values) > 1:
        raise NotInterpretedError(part.name)
    return ports(values[0], "-") if values else NOTHING


def _to(part: Part, name: str, version: IpVersion) -> tuple[Ranges, Ranges]:
    """Return the addresses and ports of a translation; a shifted range (``80-90/8080``) is not interpreted."""
    values = _values(part, name)
    if len(values) != 1:  # kernels before 2.6.11 took more
        raise NotInterpretedError(part.name)
    where, port = _apart(values[0], version)
    return span(where, version) if where else NOTHING, ports(port, "-") if port else NOTHING


def _apart(text: str, version: IpVersion) -> tuple[str, str]:
    """Return the addresses and the ports in a text, as libxt_NAT.c tells them apart."""
    if text.startswith("["):
        where, _, rest = text[1:].partition("]")
        return where, rest.removeprefix(":")
    if version == 6 and text.count(":") != 1:  # noqa: PLR2004 - one colon only stands before a port
        return text, ""
    where, _, port = text.partition(":")
    return where, port


def _connmark(part: Part, _: Lookups) -> tuple[Step, ...]:
    """Read what is done to a connection's mark; only its return to the packet changes that."""
    if any(option.name == "--restore-mark" for option in part.options):
        raise NotInterpretedError(part.name)
    return ()


_HARMLESS_FOR_CONNTRACK = frozenset({"--helper", "--timeout", "--ctevents", "--expevents"})


def _conntrack(part: Part, _: Lookups) -> tuple[Step, ...]:
    if not part.options or any(option.name not in _HARMLESS_FOR_CONNTRACK for option in part.options):
        raise NotInterpretedError(part.name)
    return ()


def _set(part: Part, lookups: Lookups) -> tuple[Step, ...]:
    return lookups.write_set(part)


_TARGETS: Mapping[str, TargetReader] = {
    "MARK": _mark,
    "DNAT": _destination,
    "SNAT": _source,
    "MASQUERADE": _masquerade,
    "REDIRECT": _redirect,
    "CONNMARK": _connmark,
    "CT": _conntrack,
    "SET": _set,
}
