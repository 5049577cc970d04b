"""What a rule's header asks: addresses, protocol, interfaces, fragments."""

from knft.interpret.iptables.arguments import Option
from knft.interpret.iptables.errors import NotInterpretedError
from knft.interpret.iptables.numbers import networks, protocol
from knft.interpret.iptables.ways import ALWAYS, NEVER, Ways
from knft.interpret.iptables.words import plain
from knft.interpret.ranges import ADDRESSES, single
from knft.interpret.rules import Field, Interface, IpVersion, Within


def read_header(option: Option, version: IpVersion) -> Ways:
    """Return what an option asks; raise NotInterpretedError or CaptureError."""
    if option.name == "-f":
        # conntrack puts fragments together before any chain of these but raw's sees them.
        return ALWAYS if option.inverted else NEVER
    value = plain(option.values[0])
    if option.name == "-p":
        return _protocol(value, inverted=option.inverted)
    if option.name in ("-i", "-o"):
        return _interface(option, value)
    return _addresses(option, value, version)


def _addresses(option: Option, text: str, version: IpVersion) -> Ways:
    if option.inverted and "," in text:
        raise NotInterpretedError(text)  # the programs refuse it: it would be passed by everybody
    ranges = networks(text, version)
    if ranges == ADDRESSES[version]:
        return NEVER if option.inverted else ALWAYS
    field = Field.SOURCE if option.name == "-s" else Field.DESTINATION
    return ((Within(field, ranges, option.inverted),),)


def _protocol(text: str, *, inverted: bool) -> Ways:
    asked = 0 if text.lower() == "all" else protocol(text)
    if not asked:  # ip6tables' 0 is no hop-by-hop header, either: it is everything
        return NEVER if inverted else ALWAYS
    return ((Within(Field.PROTOCOL, single(asked), inverted),),)


def _interface(option: Option, name: str) -> Ways:
    """Read a name: ``+`` at its end stands for anything, even for no interface at all."""
    if name == "+":
        return NEVER if option.inverted else ALWAYS
    if name.endswith("*") or not name:
        raise NotInterpretedError(name)
    pattern = f"{name[:-1]}*" if name.endswith("+") else name
    return ((Interface(Field.INPUT if option.name == "-i" else Field.OUTPUT, (pattern,), option.inverted),),)
