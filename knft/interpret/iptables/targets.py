"""Converts a target and its options to steps. ``NO_EFFECT`` are targets without effect on packets."""

from collections.abc import Callable, Mapping

from knft.families import IpVersion
from knft.interpret.errors import NotInterpretedError
from knft.interpret.iptables.arguments import Extension
from knft.interpret.iptables.lookups import Lookups
from knft.interpret.iptables.numbers import ALL_BITS, address_range, mark_and_mask, number, ports
from knft.interpret.iptables.quoting import unquote
from knft.interpret.ranges import EMPTY, Ranges
from knft.interpret.replies import reply_name
from knft.interpret.rules import SetMark, Step, Translate, Unknown, Verdict

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
"""They log, copy packets, or change fields that no interpreted rule tests."""

_NOT_INTERPRETED = frozenset(
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
"""Targets that are not interpreted; other names without options are chains."""

_VERDICTS = {
    "ACCEPT": Verdict("accept"),
    "DROP": Verdict("drop"),
    "RETURN": Verdict("return"),
}

TargetReader = Callable[[Extension, Lookups], tuple[Step, ...]]


def read_target(extension: Extension, lookups: Lookups) -> tuple[Step, ...] | None:
    """Return the steps of a target; none if it has no effect, None if it is a chain."""
    if extension.flag == "-g":
        return None
    verdict = _VERDICTS.get(extension.name)
    if verdict is not None:
        return (verdict,)
    if extension.name in NO_EFFECT:
        return ()
    read = _TARGETS.get(extension.name)
    try:
        if read is not None:
            return read(extension, lookups)
    except NotInterpretedError:
        return (Unknown(extension.text),)
    # A name with options is a target, not a chain.
    return (Unknown(extension.text),) if extension.name in _NOT_INTERPRETED or extension.options else None


def _reject(extension: Extension, lookups: Lookups) -> tuple[Step, ...]:
    for option in extension.options:
        if option.name == "--reject-with" and option.values:
            return (Verdict("reject", reply=reply_name(unquote(option.values[0]), lookups.version)),)
    return (Verdict("reject"),)


def _mark(extension: Extension, _: Lookups) -> tuple[Step, ...]:
    if len(extension.options) != 1:
        raise NotInterpretedError(extension.name)
    (option,) = extension.options
    text = unquote(option.values[0]) if option.values else ""
    if option.name in ("--set-mark", "--set-xmark"):
        value, mask = mark_and_mask(text)
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


def _destination(extension: Extension, lookups: Lookups) -> tuple[Step, ...]:
    addresses, new_ports = _nat_target(extension, "--to-destination", lookups.version)
    return (Translate("dnat", addresses, new_ports),)


def _source(extension: Extension, lookups: Lookups) -> tuple[Step, ...]:
    addresses, new_ports = _nat_target(extension, "--to-source", lookups.version)
    return (Translate("snat", addresses, new_ports),)


def _masquerade(extension: Extension, _: Lookups) -> tuple[Step, ...]:
    return (Translate("snat", ports=_redirect_ports(extension), to_interface_address=True),)


def _redirect(extension: Extension, _: Lookups) -> tuple[Step, ...]:
    return (Translate("dnat", ports=_redirect_ports(extension), to_interface_address=True),)


def _option_values(extension: Extension, name: str) -> list[str]:
    """Return the values of one option; other options may only change how an address or port is chosen."""
    if any(option.name not in (name, "--random", "--random-fully", "--persistent") for option in extension.options):
        raise NotInterpretedError(extension.name)
    return [unquote(option.values[0]) for option in extension.options if option.name == name]


def _redirect_ports(extension: Extension) -> Ranges:
    values = _option_values(extension, "--to-ports")
    if len(values) > 1:
        raise NotInterpretedError(extension.name)
    return ports(values[0], "-") if values else EMPTY


def _nat_target(extension: Extension, name: str, version: IpVersion) -> tuple[Ranges, Ranges]:
    """Return the addresses and ports of a NAT target; a shifted range (``80-90/8080``) is not interpreted."""
    values = _option_values(extension, name)
    if len(values) != 1:  # Linux before 2.6.11 accepted several
        raise NotInterpretedError(extension.name)
    addresses, port = _split_address(values[0], version)
    return address_range(addresses, version) if addresses else EMPTY, ports(port, "-") if port else EMPTY


def _split_address(text: str, version: IpVersion) -> tuple[str, str]:
    """Return the address part and the port part of a NAT target, as libxt_NAT.c splits it."""
    if text.startswith("["):
        addresses, _, rest = text[1:].partition("]")
        return addresses, rest.removeprefix(":")
    if version == 6 and text.count(":") != 1:  # noqa: PLR2004 - a single colon precedes a port
        return text, ""
    addresses, _, port = text.partition(":")
    return addresses, port


def _connmark(extension: Extension, _: Lookups) -> tuple[Step, ...]:
    """Read ``CONNMARK``: only ``--restore-mark`` changes the packet."""
    if any(option.name == "--restore-mark" for option in extension.options):
        raise NotInterpretedError(extension.name)
    return ()


_CT_OPTIONS_WITHOUT_EFFECT = frozenset({"--helper", "--timeout", "--ctevents", "--expevents"})


def _conntrack(extension: Extension, _: Lookups) -> tuple[Step, ...]:
    if not extension.options or any(option.name not in _CT_OPTIONS_WITHOUT_EFFECT for option in extension.options):
        raise NotInterpretedError(extension.name)
    return ()


def _set(extension: Extension, lookups: Lookups) -> tuple[Step, ...]:
    return lookups.write_set(extension)


_TARGETS: Mapping[str, TargetReader] = {
    "REJECT": _reject,
    "MARK": _mark,
    "DNAT": _destination,
    "SNAT": _source,
    "MASQUERADE": _masquerade,
    "REDIRECT": _redirect,
    "CONNMARK": _connmark,
    "CT": _conntrack,
    "SET": _set,
}
