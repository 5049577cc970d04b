"""Reads tests of TCP flags, given the flags that packets have in each state of a connection.

The first packet has only SYN. Later packets have one of the combinations that conntrack accepts. Packets in state
invalid or untracked may have any.
"""

from knft.families import IpVersion
from knft.interpret.alternatives import Alternatives
from knft.interpret.errors import NotInterpretedError
from knft.interpret.iptables.arguments import Option
from knft.interpret.iptables.quoting import unquote
from knft.interpret.rules import HasState, State, Step, Unknown

Flags = frozenset[str]

_ALL: Flags = frozenset({"FIN", "SYN", "RST", "PSH", "ACK", "URG"})
_SYN: Flags = frozenset({"SYN"})
_FIRST_PACKET = frozenset({_SYN})
_LATER_PACKETS = frozenset(
    {frozenset({"SYN", "ACK"}), frozenset({"RST"}), frozenset({"RST", "ACK"})}
    | {
        frozenset({"ACK", *fin, *push, *urgent})
        for fin in ((), ("FIN",))
        for push in ((), ("PSH",))
        for urgent in ((), ("URG",))
    }
)
_POSSIBLE_FLAGS: tuple[tuple[frozenset[State], frozenset[Flags]], ...] = (
    (frozenset({"new", "related"}), _FIRST_PACKET),
    (frozenset({"established"}), _LATER_PACKETS),
)
_STATES_WITH_ANY_FLAGS: frozenset[State] = frozenset({"invalid", "untracked"})


def read_syn(option: Option, _: IpVersion) -> Alternatives:
    """Read ``--syn``."""
    return _match_flags(option, frozenset({"SYN", "RST", "ACK", "FIN"}), _SYN)


def read_flags(option: Option, _: IpVersion) -> Alternatives:
    """Read ``--tcp-flags``: of the flags in the mask, exactly those in the second list are set."""
    mask, expected = (_flags(unquote(value)) for value in option.values)
    return _match_flags(option, mask, expected)


def _flags(text: str) -> Flags:
    words = frozenset(text.upper().split(","))
    if words == {"ALL"}:
        return _ALL
    if words == {"NONE"}:
        return frozenset()
    if not words <= _ALL:
        raise NotInterpretedError(text)
    return words


def _match_flags(option: Option, mask: Flags, expected: Flags) -> Alternatives:
    if not mask:
        raise NotInterpretedError(option.name)
    unknown = Unknown(f"-m tcp {option.text}")
    alternatives: list[tuple[Step, ...]] = []
    for states, possible in _POSSIBLE_FLAGS:
        passing = [flags for flags in possible if (flags & mask == expected) is not option.inverted]
        if len(passing) == len(possible):
            alternatives.append((HasState(states),))
        elif passing:
            alternatives.append((HasState(states), unknown))
    alternatives.append((HasState(_STATES_WITH_ANY_FLAGS), unknown))
    return tuple(alternatives)
