"""What the matches ``conntrack`` and ``state`` ask."""

from knft.interpret.iptables.arguments import Option
from knft.interpret.iptables.errors import NotInterpretedError
from knft.interpret.iptables.numbers import networks, ports, protocol
from knft.interpret.iptables.ways import Ways, either
from knft.interpret.iptables.words import plain
from knft.interpret.ranges import single
from knft.interpret.rules import Field, HasState, IpVersion, State, Step, Translated, Within

_STATES: dict[str, State] = {
    "NEW": "new",
    "ESTABLISHED": "established",
    "RELATED": "related",
    "INVALID": "invalid",
    "UNTRACKED": "untracked",
}


def read_state(option: Option, _: IpVersion) -> Ways:
    """Read ``--ctstate`` and ``--state``: any of the states, or a translation of the connection (xt_conntrack.c)."""
    asked = set(plain(option.values[0]).upper().split(","))
    states = frozenset(_STATES[name] for name in asked if name in _STATES)
    tests: list[tuple[Step, Step]] = []
    if states:
        tests.append((HasState(states), HasState(states, inverted=True)))
    if "SNAT" in asked:
        tests.append((Translated("snat"), Translated("snat", inverted=True)))
    if "DNAT" in asked:
        tests.append((Translated("dnat"), Translated("dnat", inverted=True)))
    if not asked <= {*_STATES, "SNAT", "DNAT"}:
        raise NotInterpretedError(option.name)
    return (tuple(opposite for _, opposite in tests),) if option.inverted else either(tests)


def _original(field: Field, option: Option, version: IpVersion) -> Ways:
    return ((Within(field, networks(plain(option.values[0]), version), option.inverted),),)


def read_original_source(option: Option, version: IpVersion) -> Ways:
    """Read ``--ctorigsrc``."""
    return _original(Field.ORIGINAL_SOURCE, option, version)


def read_original_destination(option: Option, version: IpVersion) -> Ways:
    """Read ``--ctorigdst``."""
    return _original(Field.ORIGINAL_DESTINATION, option, version)


def read_original_port(option: Option, _: IpVersion) -> Ways:
    """Read ``--ctorigdstport``."""
    return ((Within(Field.ORIGINAL_PORT, ports(plain(option.values[0])), option.inverted),),)


def read_protocol(option: Option, _: IpVersion) -> Ways:
    """Read ``--ctproto``: a packet's protocol is its connection's."""
    return ((Within(Field.PROTOCOL, single(protocol(plain(option.values[0]))), option.inverted),),)
