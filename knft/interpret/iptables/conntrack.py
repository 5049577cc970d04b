"""Reads the options of the matches ``conntrack`` and ``state``."""

from knft.families import IpVersion
from knft.interpret.alternatives import Alternatives, any_of
from knft.interpret.errors import NotInterpretedError
from knft.interpret.iptables.arguments import Option
from knft.interpret.iptables.numbers import networks, ports, protocol
from knft.interpret.iptables.quoting import unquote
from knft.interpret.ranges import single
from knft.interpret.rules import Field, HasState, State, Step, Translated, Within

_STATES: dict[str, State] = {
    "NEW": "new",
    "ESTABLISHED": "established",
    "RELATED": "related",
    "INVALID": "invalid",
    "UNTRACKED": "untracked",
}


def read_state(option: Option, _: IpVersion) -> Alternatives:
    """Read ``--ctstate`` and ``--state``: any of the states, or a translation of the connection (xt_conntrack.c)."""
    names = set(unquote(option.values[0]).upper().split(","))
    states = frozenset(_STATES[name] for name in names if name in _STATES)
    tests: list[tuple[Step, Step]] = []
    if states:
        tests.append((HasState(states), HasState(states, inverted=True)))
    if "SNAT" in names:
        tests.append((Translated("snat"), Translated("snat", inverted=True)))
    if "DNAT" in names:
        tests.append((Translated("dnat"), Translated("dnat", inverted=True)))
    if not names <= {*_STATES, "SNAT", "DNAT"}:
        raise NotInterpretedError(option.name)
    return (tuple(inverse for _, inverse in tests),) if option.inverted else any_of(tests)


def _original_tuple(field: Field, option: Option, version: IpVersion) -> Alternatives:
    return ((Within(field, networks(unquote(option.values[0]), version), option.inverted),),)


def read_original_source(option: Option, version: IpVersion) -> Alternatives:
    """Read ``--ctorigsrc``."""
    return _original_tuple(Field.ORIGINAL_SOURCE, option, version)


def read_original_destination(option: Option, version: IpVersion) -> Alternatives:
    """Read ``--ctorigdst``."""
    return _original_tuple(Field.ORIGINAL_DESTINATION, option, version)


def read_original_port(option: Option, _: IpVersion) -> Alternatives:
    """Read ``--ctorigdstport``."""
    return ((Within(Field.ORIGINAL_PORT, ports(unquote(option.values[0])), option.inverted),),)


def read_protocol(option: Option, _: IpVersion) -> Alternatives:
    """Read ``--ctproto``: a packet's protocol is its connection's."""
    return ((Within(Field.PROTOCOL, single(protocol(unquote(option.values[0]))), option.inverted),),)
