"""What the flags of TCP say of a packet: which packets of a connection have them.

What opens a connection has SYN alone. Later packets have one of the combinations that conntrack takes for valid, and
those that it can place nowhere may have any.
"""

from knft.interpret.iptables.arguments import Option
from knft.interpret.iptables.errors import NotInterpretedError
from knft.interpret.iptables.ways import Ways
from knft.interpret.iptables.words import plain
from knft.interpret.rules import HasState, IpVersion, State, Step, Unknown

Flags = frozenset[str]

_ALL: Flags = frozenset({"FIN", "SYN", "RST", "PSH", "ACK", "URG"})
_SYN: Flags = frozenset({"SYN"})
_OPENING = frozenset({_SYN})
_LATER = frozenset(
    {frozenset({"SYN", "ACK"}), frozenset({"RST"}), frozenset({"RST", "ACK"})}
    | {
        frozenset({"ACK", *fin, *push, *urgent})
        for fin in ((), ("FIN",))
        for push in ((), ("PSH",))
        for urgent in ((), ("URG",))
    }
)
_BY_STATE: tuple[tuple[frozenset[State], frozenset[Flags]], ...] = (
    (frozenset({"new", "related"}), _OPENING),
    (frozenset({"established"}), _LATER),
)
_ANY: frozenset[State] = frozenset({"invalid", "untracked"})


def read_syn(option: Option, _: IpVersion) -> Ways:
    """Read ``--syn``."""
    return _with_flags(option, frozenset({"SYN", "RST", "ACK", "FIN"}), _SYN)


def read_flags(option: Option, _: IpVersion) -> Ways:
    """Read ``--tcp-flags``: of some flags, just those that are set."""
    mask, wanted = (_flags(plain(value)) for value in option.values)
    return _with_flags(option, mask, wanted)


def _flags(text: str) -> Flags:
    words = frozenset(text.upper().split(","))
    if words == {"ALL"}:
        return _ALL
    if words == {"NONE"}:
        return frozenset()
    if not words <= _ALL:
        raise NotInterpretedError(text)
    return words


def _with_flags(option: Option, mask: Flags, wanted: Flags) -> Ways:
    if not mask:
        raise NotInterpretedError(option.name)
    unknown = Unknown(f"-m tcp {option.text}")
    ways: list[tuple[Step, ...]] = []
    for states, possible in _BY_STATE:
        passing = [flags for flags in possible if (flags & mask == wanted) is not option.inverted]
        if len(passing) == len(possible):
            ways.append((HasState(states),))
        elif passing:
            ways.append((HasState(states), unknown))
    ways.append((HasState(_ANY), unknown))
    return tuple(ways)
