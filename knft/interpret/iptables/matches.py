"""Converts a match and its options to alternatives; a match that is not in ``MATCHES`` becomes ``Unknown``.

Packets are assumed to be routed, sent to one host, and to arrive on the interface of the route to their source.

- ``rpfilter`` always passes: the route to the source leads to the packet's input interface.
- ``physdev`` never passes: routed packets have no bridge port. Under br_netfilter, packets of pods behind a bridge have
  one before they are routed. kube-proxy uses it only in IPVS mode, to accept packets to external IPs that later rules
  accept as well.
- ``pkttype`` tests the destination address: a link-layer broadcast has a broadcast address, too.
- ``nfacct`` only counts packets.
"""

from collections.abc import Callable, Iterable, Mapping

from knft.families import IpVersion
from knft.interpret.alternatives import ALWAYS, NEVER, Alternatives, all_of, any_of
from knft.interpret.errors import NotInterpretedError
from knft.interpret.iptables import conntrack, tcp_flags
from knft.interpret.iptables.arguments import OPTION_VALUE_COUNTS, Extension, Option
from knft.interpret.iptables.lookups import Lookups
from knft.interpret.iptables.numbers import (
    address,
    address_range,
    mark_and_mask,
    number,
    port,
    ports,
    probability,
    protocol,
)
from knft.interpret.iptables.quoting import unquote
from knft.interpret.ranges import Ranges, ranges, single
from knft.interpret.rules import AddressType, Field, Marked, Probability, Unknown, ViaVirtualServer, Within

OptionReader = Callable[[Option, IpVersion], Alternatives]
MatchReader = Callable[[Extension, Lookups], Alternatives]


def read_match(extension: Extension, lookups: Lookups) -> Alternatives:
    """Return the test of a match; one that is not interpreted becomes ``Unknown``."""
    read = MATCHES.get(extension.name)
    options = OPTION_VALUE_COUNTS.get(extension.name, {})
    # An unknown option may change the others; matches of independent options handle it option by option.
    if read is None or (
        extension.name in _WHOLE_MATCHES and any(option.name not in options for option in extension.options)
    ):
        return _unknown(extension.text)
    try:
        return read(extension, lookups)
    except NotInterpretedError:
        return _unknown(extension.text)


def _unknown(text: str) -> Alternatives:
    return ((Unknown(text),),)


def _options_reader(readers: Mapping[str, OptionReader]) -> MatchReader:
    """Return a reader of a match whose options are independent tests."""

    def read(extension: Extension, lookups: Lookups) -> Alternatives:
        return all_of([one(extension, option, lookups.version) for option in extension.options])

    def one(extension: Extension, option: Option, version: IpVersion) -> Alternatives:
        reader = readers.get(option.name)
        try:
            if reader is not None:
                return reader(option, version)
        except NotInterpretedError:
            pass
        return _unknown(f"-m {extension.name} {option.text}")

    return read


def _always(_: Option, __: IpVersion) -> Alternatives:
    return ALWAYS


def _source_port(option: Option, _: IpVersion) -> Alternatives:
    return ((Within(Field.SOURCE_PORT, ports(unquote(option.values[0])), option.inverted),),)


def _destination_port(option: Option, _: IpVersion) -> Alternatives:
    return ((Within(Field.DESTINATION_PORT, ports(unquote(option.values[0])), option.inverted),),)


_PORTS: Mapping[str, OptionReader] = {"--sport": _source_port, "--dport": _destination_port}


def _port_list(option: Option) -> Ranges:
    return ranges(pair for item in unquote(option.values[0]).split(",") for pair in ports(item))


def _source_ports(option: Option, _: IpVersion) -> Alternatives:
    return ((Within(Field.SOURCE_PORT, _port_list(option), option.inverted),),)


def _destination_ports(option: Option, _: IpVersion) -> Alternatives:
    return ((Within(Field.DESTINATION_PORT, _port_list(option), option.inverted),),)


def _either_port(option: Option, _: IpVersion) -> Alternatives:
    port_ranges = _port_list(option)
    tests = [
        (Within(field, port_ranges), Within(field, port_ranges, inverted=True))
        for field in (Field.SOURCE_PORT, Field.DESTINATION_PORT)
    ]
    return (tuple(inverse for _, inverse in tests),) if option.inverted else any_of(tests)


def _mark(option: Option, _: IpVersion) -> Alternatives:
    value, mask = mark_and_mask(unquote(option.values[0]))
    return ((Marked(mask, single(value), option.inverted),),)


_ADDRESS_TYPES = frozenset(
    ("unicast", "local", "broadcast", "anycast", "multicast", "blackhole", "unreachable", "prohibit", "throw")
)


def _address_type(option: Option, _: IpVersion) -> Alternatives:
    types = frozenset(unquote(option.values[0]).lower().split(","))
    if not types <= _ADDRESS_TYPES:
        raise NotInterpretedError(option.name)
    field: Field = Field.SOURCE if option.name == "--src-type" else Field.DESTINATION
    return ((AddressType(field, types, option.inverted),),)  # type: ignore[arg-type]


def _source_range(option: Option, version: IpVersion) -> Alternatives:
    return ((Within(Field.SOURCE, address_range(unquote(option.values[0]), version), option.inverted),),)


def _destination_range(option: Option, version: IpVersion) -> Alternatives:
    return ((Within(Field.DESTINATION, address_range(unquote(option.values[0]), version), option.inverted),),)


def _packet_type(option: Option, _: IpVersion) -> Alternatives:
    kind = unquote(option.values[0]).lower()
    if kind in ("unicast", "host"):
        others = frozenset({"broadcast", "multicast"})
        return ((AddressType(Field.DESTINATION, others, not option.inverted),),)
    if kind not in ("broadcast", "multicast"):
        raise NotInterpretedError(kind)
    return ((AddressType(Field.DESTINATION, frozenset({kind}), option.inverted),),)


def _icmp_type(option: Option, _: IpVersion) -> Alternatives:
    if unquote(option.values[0]) != "any":
        raise NotInterpretedError(option.name)
    return NEVER if option.inverted else ALWAYS


def _statistic(extension: Extension, _: Lookups) -> Alternatives:
    """Read ``statistic``: a random share of the packets, or every n-th packet."""
    options = {option.name: option for option in extension.options}
    option = options.get("--probability") or options.get("--every")
    if option is None:
        raise NotInterpretedError(extension.name)
    text = unquote(option.values[0])
    if option.name == "--every":
        every = number(text, (1 << 32) - 1)
        share = probability(f"0.{'0' * 12}") if not every else probability("1") / every
    else:
        share = probability(text)
    return ((Probability(1 - share if option.inverted else share),),)


def _physdev(extension: Extension, _: Lookups) -> Alternatives:
    """Read ``physdev`` for a packet without a bridge port: only inverted tests pass (xt_physdev.c)."""
    return ALWAYS if all(option.inverted for option in extension.options) else NEVER


def _rpfilter(extension: Extension, _: Lookups) -> Alternatives:
    return NEVER if any(option.name == "--invert" for option in extension.options) else ALWAYS


def _ipvs(extension: Extension, lookups: Lookups) -> Alternatives:
    """Read ``ipvs``: the virtual server of a packet; it is not interpreted without address, protocol and port."""
    options = {option.name: option for option in extension.options}
    others = options.keys() - {"--ipvs", "--vaddr", "--vproto", "--vport"}
    if others or len(options) < len(("--vaddr", "--vproto", "--vport")) or any(o.inverted for o in extension.options):
        raise NotInterpretedError(extension.name)
    where, has_mask, mask = _value(options, "--vaddr").partition("/")
    if has_mask and mask not in ("32", "128", "255.255.255.255", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"):
        raise NotInterpretedError(extension.name)
    server = ViaVirtualServer(
        address(where, lookups.version), protocol(_value(options, "--vproto")), port(_value(options, "--vport"))
    )
    return ((server,),)


def _value(options: Mapping[str, Option], name: str) -> str:
    if name not in options:
        raise NotInterpretedError(name)
    return unquote(options[name].values[0])


def _match_set(extension: Extension, lookups: Lookups) -> Alternatives:
    return lookups.match_set(extension)


def _recent(extension: Extension, lookups: Lookups) -> Alternatives:
    return lookups.match_recent(extension)


_TCP: Mapping[str, OptionReader] = {**_PORTS, "--tcp-flags": tcp_flags.read_flags, "--syn": tcp_flags.read_syn}
_MULTIPORT: Mapping[str, OptionReader] = {
    "--ports": _either_port,
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


def _option_matches(of_options: Iterable[tuple[str, Mapping[str, OptionReader]]]) -> dict[str, MatchReader]:
    return {name: _options_reader(readers) for name, readers in of_options}


_WHOLE_MATCHES: Mapping[str, MatchReader] = {
    "statistic": _statistic,
    "recent": _recent,
    "set": _match_set,
    "physdev": _physdev,
    "rpfilter": _rpfilter,
    "ipvs": _ipvs,
}
"""Matches whose options depend on each other."""

MATCHES: Mapping[str, MatchReader] = {
    **_option_matches(
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
    **_WHOLE_MATCHES,
}
