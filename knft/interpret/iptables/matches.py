"""What each match asks. ``MATCHES`` is the list of all that are interpreted; any other becomes ``Unknown``.

Packets are taken for what a Service's are: routed, to one host, on a path that the machine answers by.

- ``rpfilter`` is passed: an answer would go out where the packet came in.
- ``physdev`` finds nothing: what is routed has no port of a bridge. Under br_netfilter the packets of pods behind a
  bridge do have one before they are routed; of kube-proxy's rules only the ACCEPT of external IPs in IPVS mode asks,
  and what it lets through early, the rules behind it let through as well.
- ``pkttype`` goes by the destination: a link's broadcast is an address' too.
- ``nfacct`` counts, and is always passed.
"""

from collections.abc import Callable, Iterable, Mapping

from knft.interpret.iptables import conntrack, flags
from knft.interpret.iptables.arguments import VALUES, Option, Part
from knft.interpret.iptables.errors import NotInterpretedError
from knft.interpret.iptables.lookups import Lookups
from knft.interpret.iptables.numbers import address, chance, masked, number, port, ports, protocol, span
from knft.interpret.iptables.ways import ALWAYS, NEVER, Ways, either, together
from knft.interpret.iptables.words import plain
from knft.interpret.ranges import Ranges, ranges, single
from knft.interpret.rules import AddressType, Chance, Field, IpVersion, Marked, ThroughServer, Unknown, Within

OptionReader = Callable[[Option, IpVersion], Ways]
PartReader = Callable[[Part, Lookups], Ways]


def read_match(part: Part, lookups: Lookups) -> Ways:
    """Return what a match asks; what is not interpreted is Unknown."""
    read = MATCHES.get(part.name)
    known = VALUES.get(part.name, {})
    # Options of other versions may say anything; where each option stands for itself, _each sees to it.
    if read is None or (part.name in _WHOLE and any(option.name not in known for option in part.options)):
        return _unknown(part.text)
    try:
        return read(part, lookups)
    except NotInterpretedError:
        return _unknown(part.text)


def _unknown(text: str) -> Ways:
    return ((Unknown(text),),)


def _each(readers: Mapping[str, OptionReader]) -> PartReader:
    """Return what reads a match whose options ask one thing each."""

    def read(part: Part, lookups: Lookups) -> Ways:
        return together([one(part, option, lookups.version) for option in part.options])

    def one(part: Part, option: Option, version: IpVersion) -> Ways:
        reader = readers.get(option.name)
        try:
            if reader is not None:
                return reader(option, version)
        except NotInterpretedError:
            pass
        return _unknown(f"-m {part.name} {option.text}")

    return read


def _always(_: Option, __: IpVersion) -> Ways:
    return ALWAYS


def _source_port(option: Option, _: IpVersion) -> Ways:
    return ((Within(Field.SOURCE_PORT, ports(plain(option.values[0])), option.inverted),),)


def _destination_port(option: Option, _: IpVersion) -> Ways:
    return ((Within(Field.DESTINATION_PORT, ports(plain(option.values[0])), option.inverted),),)


_PORTS: Mapping[str, OptionReader] = {"--sport": _source_port, "--dport": _destination_port}


def _listed(option: Option) -> Ranges:
    return ranges(pair for item in plain(option.values[0]).split(",") for pair in ports(item))


def _source_ports(option: Option, _: IpVersion) -> Ways:
    return ((Within(Field.SOURCE_PORT, _listed(option), option.inverted),),)


def _destination_ports(option: Option, _: IpVersion) -> Ways:
    return ((Within(Field.DESTINATION_PORT, _listed(option), option.inverted),),)


def _ports_of_either_end(option: Option, _: IpVersion) -> Ways:
    listed = _listed(option)
    tests = [
        (Within(field, listed), Within(field, listed, inverted=True))
        for field in (Field.SOURCE_PORT, Field.DESTINATION_PORT)
    ]
    return (tuple(opposite for _, opposite in tests),) if option.inverted else either(tests)


def _mark(option: Option, _: IpVersion) -> Ways:
    value, mask = masked(plain(option.values[0]))
    return ((Marked(mask, single(value), option.inverted),),)


_ADDRESS_TYPES = frozenset(
    ("unicast", "local", "broadcast", "anycast", "multicast", "blackhole", "unreachable", "prohibit", "throw")
)


def _address_type(option: Option, _: IpVersion) -> Ways:
    types = frozenset(plain(option.values[0]).lower().split(","))
    if not types <= _ADDRESS_TYPES:
        raise NotInterpretedError(option.name)
    field: Field = Field.SOURCE if option.name == "--src-type" else Field.DESTINATION
    return ((AddressType(field, types, option.inverted),),)  # type: ignore[arg-type]


def _source_range(option: Option, version: IpVersion) -> Ways:
    return ((Within(Field.SOURCE, span(plain(option.values[0]), version), option.inverted),),)


def _destination_range(option: Option, version: IpVersion) -> Ways:
    return ((Within(Field.DESTINATION, span(plain(option.values[0]), version), option.inverted),),)


def _packet_type(option: Option, _: IpVersion) -> Ways:
    kind = plain(option.values[0]).lower()
    if kind in ("unicast", "host"):
        others = frozenset({"broadcast", "multicast"})
        return ((AddressType(Field.DESTINATION, others, not option.inverted),),)
    if kind not in ("broadcast", "multicast"):
        raise NotInterpretedError(kind)
    return ((AddressType(Field.DESTINATION, frozenset({kind}), option.inverted),),)


def _icmp_type(option: Option, _: IpVersion) -> Ways:
    if plain(option.values[0]) != "any":
        raise NotInterpretedError(option.name)
    return NEVER if option.inverted else ALWAYS


def _statistic(part: Part, _: Lookups) -> Ways:
    """Read a share of all packets: drawn, or every so many."""
    options = {option.name: option for option in part.options}
    option = options.get("--probability") or options.get("--every")
    if option is None:
        raise NotInterpretedError(part.name)
    text = plain(option.values[0])
    if option.name == "--every":
        every = number(text, (1 << 32) - 1)
        share = chance(f"0.{'0' * 12}") if not every else chance("1") / every
    else:
        share = chance(text)
    return ((Chance(1 - share if option.inverted else share),),)


def _physdev(part: Part, _: Lookups) -> Ways:
    """Read what is asked of a packet without a bridge: only what is not so is so (xt_physdev.c)."""
    return ALWAYS if all(option.inverted for option in part.options) else NEVER


def _rpfilter(part: Part, _: Lookups) -> Ways:
    return NEVER if any(option.name == "--invert" for option in part.options) else ALWAYS


def _ipvs(part: Part, lookups: Lookups) -> Ways:
    """Read which virtual server a packet is sent for; fewer than all three of its parts say less than a server."""
    options = {option.name: option for option in part.options}
    others = options.keys() - {"--ipvs", "--vaddr", "--vproto", "--vport"}
    if others or len(options) < len(("--vaddr", "--vproto", "--vport")) or any(o.inverted for o in part.options):
        raise NotInterpretedError(part.name)
    where, has_mask, mask = _value(options, "--vaddr").partition("/")
    if has_mask and mask not in ("32", "128", "255.255.255.255", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"):
        raise NotInterpretedError(part.name)
    server = ThroughServer(
        address(where, lookups.version), protocol(_value(options, "--vproto")), port(_value(options, "--vport"))
    )
    return ((server,),)


def _value(options: Mapping[str, Option], name: str) -> str:
    if name not in options:
        raise NotInterpretedError(name)
    return plain(options[name].values[0])


def _match_set(part: Part, lookups: Lookups) -> Ways:
    return lookups.match_set(part)


def _recent(part: Part, lookups: Lookups) -> Ways:
    return lookups.recent(part)


_TCP: Mapping[str, OptionReader] = {**_PORTS, "--tcp-flags": flags.read_flags, "--syn": flags.read_syn}
_MULTIPORT: Mapping[str, OptionReader] = {
    "--ports": _ports_of_either_end,
    "--sports": _source_ports,
    "--dports": _destination_ports,
}
_CONNTRACK: Mapping[str, OptionReader] = {
    "--ctstate": conntrack.read_state,
    "--ctproto": conntrack.read_protocol,
    "--ctorigsrc": conntrack.read_original_source,
    "--ctorigdst": conntrack.read_original_destination,
    "--ctorigdstport": conntrack.read_original_port,
}


def _table(of_options: Iterable[tuple[str, Mapping[str, OptionReader]]]) -> dict[str, PartReader]:
    return {name: _each(readers) for name, readers in of_options}


_WHOLE: Mapping[str, PartReader] = {
    "statistic": _statistic,
    "recent": _recent,
    "set": _match_set,
    "physdev": _physdev,
    "rpfilter": _rpfilter,
    "ipvs": _ipvs,
}
"""Matches whose options say something together."""

MATCHES: Mapping[str, PartReader] = {
    **_table(
        (
            ("comment", {"--comment": _always}),
            ("nfacct", {"--nfacct-name": _always}),
            ("tcp", _TCP),
            ("udp", _PORTS),
            ("sctp", _PORTS),
            ("dccp", _PORTS),
            ("udplite", _PORTS),
            ("multiport", _MULTIPORT),
            ("icmp", {"--icmp-type": _icmp_type}),
            ("icmp6", {"--icmpv6-type": _icmp_type}),
            ("mark", {"--mark": _mark}),
            ("state", {"--state": conntrack.read_state}),
            ("conntrack", _CONNTRACK),
            ("addrtype", {"--src-type": _address_type, "--dst-type": _address_type}),
            ("iprange", {"--src-range": _source_range, "--dst-range": _destination_range}),
            ("pkttype", {"--pkt-type": _packet_type}),
        )
    ),
    **_WHOLE,
}
