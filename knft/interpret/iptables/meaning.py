"""Makes steps of a rule's words: one rule, or as many as it has alternatives."""

from collections.abc import Callable, Iterable
from typing import TypeVar

from knft.errors import CaptureError
from knft.interpret.iptables.arguments import Arguments, Option, Part, arguments
from knft.interpret.iptables.errors import NotInterpretedError
from knft.interpret.iptables.header import read_header
from knft.interpret.iptables.lookups import Lookups
from knft.interpret.iptables.matches import read_match
from knft.interpret.iptables.targets import read_target
from knft.interpret.iptables.ways import Ways, together
from knft.interpret.iptables.words import quoted
from knft.interpret.rules import Remember, Step, Unknown, Verdict

_KEPT = 4096
"""So many options are remembered with what they mean: most lines of a large capture say the same few things."""

_Said = TypeVar("_Said")
_Meant = TypeVar("_Meant")


class Meaning:
    """Reads rules, and shares what is equal among them."""

    def __init__(self, lookups: Lookups) -> None:
        """Take what rules may look up."""
        self._lookups = lookups
        self._header: dict[Option, Ways] = {}
        self._matches: dict[Part, Ways] = {}
        self._targets: dict[tuple[str, Part], tuple[Step, ...]] = {}

    def rule(self, words: list[str], table: str) -> tuple[Ways, str]:
        """Return the alternatives of what follows the chain's name in a rule, and its comment; raise CaptureError."""
        said = arguments(words)
        asked = [_kept(self._header, option, self._read_header) for option in said.header]
        asked += [_kept(self._matches, part, self._read_match) for part in said.matches]
        action = self._action(said, table)
        return tuple(_in_force(asked, action)), said.comment

    def _read_header(self, option: Option) -> Ways:
        try:
            return read_header(option, self._lookups.version)
        except NotInterpretedError:
            return ((Unknown(option.text),),)

    def _read_match(self, part: Part) -> Ways:
        return read_match(part, self._lookups)

    def _action(self, said: Arguments, table: str) -> tuple[Step, ...]:
        if said.target is None:
            return ()
        return _kept(self._targets, (table, said.target), self._read_target)

    def _read_target(self, said: tuple[str, Part]) -> tuple[Step, ...]:
        table, part = said
        steps = read_target(part, self._lookups)
        if steps is not None:
            return steps
        if part.options:
            msg = f"the chain {quoted(part.name)} has no option {part.options[0].name}"
            raise CaptureError(msg)
        return (Verdict("goto" if part.jump == "-g" else "jump", f"{table} {part.name}"),)


def _kept(known: dict[_Said, _Meant], said: _Said, read: Callable[[_Said], _Meant]) -> _Meant:
    found = known.get(said)
    if found is None:
        if len(known) >= _KEPT:
            known.clear()
        found = known[said] = read(said)
    return found


def _in_force(asked: Iterable[Ways], action: tuple[Step, ...]) -> Iterable[tuple[Step, ...]]:
    """Yield the steps of each alternative, what is unknown last: where a known test fails, it does not matter."""
    for tests in together(asked):
        known = tuple([step for step in tests if not isinstance(step, Unknown)])
        if action:
            yield (*known, *[step for step in tests if isinstance(step, Unknown)], *action)
        elif any(isinstance(step, Remember) for step in known):
            yield known
        else:
            # It counts, logs, or leads nowhere: nobody can tell whether a packet passed it.
            yield ()
            return
