"""Reads the header options of a rule: addresses, protocol, interfaces, fragments."""

from knft.families import IpVersion
from knft.interpret.alternatives import ALWAYS, NEVER, Alternatives
from knft.interpret.errors import NotInterpretedError
from knft.interpret.iptables.arguments import Option
from knft.interpret.iptables.numbers import networks, protocol
from knft.interpret.iptables.quoting import unquote
from knft.interpret.ranges import ADDRESSES, single
from knft.interpret.rules import Field, Interface, Within


def read_header_option(option: Option, version: IpVersion) -> Alternatives:
    """Return the test of an option; raise NotInterpretedError or CaptureError."""
    if option.name == "-f":
        # conntrack reassembles packets before all chains except those of raw.
        return ALWAYS if option.inverted else NEVER
    value = unquote(option.values[0])
    if option.name == "-p":
        return _protocol(value, inverted=option.inverted)
    if option.name in ("-i", "-o"):
        return _interface(option, value)
    return _addresses(option, value, version)


def _addresses(option: Option, text: str, version: IpVersion) -> Alternatives:
    if option.inverted and "," in text:
        raise NotInterpretedError(text)  # iptables refuses it: all packets would pass
    ranges = networks(text, version)
    if ranges == ADDRESSES[version]:
        return NEVER if option.inverted else ALWAYS
    field = Field.SOURCE if option.name == "-s" else Field.DESTINATION
    return ((Within(field, ranges, option.inverted),),)


def _protocol(text: str, *, inverted: bool) -> Alternatives:
    number = 0 if text.lower() == "all" else protocol(text)
    if not number:  # ip6tables, too, takes 0 for all protocols, not for the hop-by-hop header
        return NEVER if inverted else ALWAYS
    return ((Within(Field.PROTOCOL, single(number), inverted),),)


def _interface(option: Option, name: str) -> Alternatives:
    """Read an interface name; a final ``+`` matches any suffix, and ``+`` alone also matches no interface."""
    if name == "+":
        return NEVER if option.inverted else ALWAYS
    if name.endswith("*") or not name:
        raise NotInterpretedError(name)
    pattern = f"{name[:-1]}*" if name.endswith("+") else name
    return ((Interface(Field.INPUT if option.name == "-i" else Field.OUTPUT, (pattern,), option.inverted),),)
