"""Converts the words of one rule to the steps of its alternatives."""

from collections.abc import Callable, Iterable
from typing import TypeVar

from knft.errors import CaptureError
from knft.interpret.alternatives import Alternatives, all_of
from knft.interpret.errors import NotInterpretedError, abbreviated
from knft.interpret.iptables.arguments import Extension, Option, RuleArguments, parse_arguments
from knft.interpret.iptables.header import read_header_option
from knft.interpret.iptables.lookups import Lookups
from knft.interpret.iptables.matches import read_match
from knft.interpret.iptables.targets import read_target
from knft.interpret.rules import AddToSet, Step, Unknown, Verdict

_MAX_CACHED = 4096
"""The most results in a cache: most lines of a large capture repeat a few options."""

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class RuleReader:
    """Reads rules; caches the results for options, matches and targets."""

    def __init__(self, lookups: Lookups) -> None:
        """Take the ipsets and lists that rules look up."""
        self._lookups = lookups
        self._header: dict[Option, Alternatives] = {}
        self._matches: dict[Extension, Alternatives] = {}
        self._targets: dict[tuple[str, Extension], tuple[Step, ...]] = {}

    def read(self, words: list[str], table: str) -> tuple[Alternatives, str]:
        """Return the alternatives and the comment of a rule, given the words after its chain; raise CaptureError."""
        arguments = parse_arguments(words)
        matches = [_cached(self._header, option, self._read_header) for option in arguments.header]
        matches += [_cached(self._matches, extension, self._read_match) for extension in arguments.matches]
        action = self._read_action(arguments, table)
        return tuple(_join(matches, action)), arguments.comment

    def _read_header(self, option: Option) -> Alternatives:
        try:
            return read_header_option(option, self._lookups.version)
        except NotInterpretedError:
            return ((Unknown(option.text),),)

    def _read_match(self, extension: Extension) -> Alternatives:
        return read_match(extension, self._lookups)

    def _read_action(self, arguments: RuleArguments, table: str) -> tuple[Step, ...]:
        if arguments.target is None:
            return ()
        return _cached(self._targets, (table, arguments.target), self._read_target)

    def _read_target(self, table_and_target: tuple[str, Extension]) -> tuple[Step, ...]:
        table, target = table_and_target
        steps = read_target(target, self._lookups)
        if steps is not None:
            return steps
        if target.options:
            msg = f"the chain {abbreviated(target.name)} has no option {target.options[0].name}"
            raise CaptureError(msg)
        return (Verdict("goto" if target.flag == "-g" else "jump", f"{table} {target.name}"),)


def _cached(cache: dict[_Key, _Value], key: _Key, read: Callable[[_Key], _Value]) -> _Value:
    value = cache.get(key)
    if value is None:
        if len(cache) >= _MAX_CACHED:
            cache.clear()
        value = cache[key] = read(key)
    return value


def _join(matches: Iterable[Alternatives], action: tuple[Step, ...]) -> Iterable[tuple[Step, ...]]:
    """Yield the steps of each alternative; ``Unknown`` tests come last, as a packet may fail a known test anyway."""
    for tests in all_of(matches):
        known = tuple([step for step in tests if not isinstance(step, Unknown)])
        if action:
            yield (*known, *[step for step in tests if isinstance(step, Unknown)], *action)
        elif any(isinstance(step, AddToSet) for step in known):
            yield known
        else:
            # The rule counts, logs or has no target, so it does not matter which packets pass it.
            yield ()
            return
