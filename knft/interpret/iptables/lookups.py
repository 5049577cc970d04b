"""Collections that rules look at and write: ipsets, and the lists of the match ``recent``."""

import re
from collections.abc import Mapping

from knft.errors import CaptureError
from knft.interpret.iptables.arguments import Option, Part
from knft.interpret.iptables.errors import NotInterpretedError
from knft.interpret.iptables.ipsets import IpSet
from knft.interpret.iptables.numbers import ALL_BITS, WIDTHS, address, number
from knft.interpret.iptables.ways import ALWAYS, Ways, together
from knft.interpret.iptables.words import plain, quoted
from knft.interpret.rules import Collection, Field, InSet, IpVersion, Never, Remember, Step
from knft.interpret.rules import Part as KeyPart

_WRITTEN = re.compile(r"--(add|del)-set +(\S+)")
_IPSET, _RECENT = "ipset ", "recent "

_FIELDS: dict[tuple[str, str], tuple[KeyPart, ...]] = {
    ("ip", "src"): (Field.SOURCE,),
    ("ip", "dst"): (Field.DESTINATION,),
    ("net", "src"): (Field.SOURCE,),
    ("net", "dst"): (Field.DESTINATION,),
    ("port", "src"): (Field.PROTOCOL, Field.SOURCE_PORT),
    ("port", "dst"): (Field.PROTOCOL, Field.DESTINATION_PORT),
}
"""What of a packet is looked up, for each part of a set and each word of a rule."""


class Lookups:
    """What there is to look at, and what has been looked at so far."""

    def __init__(self, version: IpVersion, sets: Mapping[str, IpSet], save: str) -> None:
        """Take the sets; ``save`` is all rules: which sets they write has to be known from the start."""
        self.version = version
        self._sets = sets
        written = _WRITTEN.findall(save) if "-set" in save else []
        self._written = {name for _, name in written}
        self._deleted_from = {name for verb, name in written if verb == "del"}
        self.collections: dict[str, Collection] = {}

    def match_set(self, part: Part) -> Ways:
        """Read ``-m set``."""
        return together([self._match_option(option) for option in part.options])

    def _match_option(self, option: Option) -> Ways:
        if option.name in ("--update-counters", "--update-subcounters"):
            return ALWAYS
        if option.name != "--match-set":
            raise NotInterpretedError(option.name)
        name, flags = (plain(value) for value in option.values)
        found = self._known(name)
        wanted = flags.split(",")
        if not self._can_hold(found, wanted):
            return ((),) if option.inverted else ((Never(),),)
        return ((InSet(self._used(name, found), _key(found, wanted), option.inverted),),)

    def _known(self, name: str) -> IpSet:
        found = self._sets.get(name)
        if found is None:
            msg = f"the rule asks for the ipset {quoted(name)}, which is not there: `ipset save` is needed, too"
            raise CaptureError(msg)
        return found

    def _can_hold(self, found: IpSet, wanted: list[str]) -> bool:
        """Tell whether a packet can be in a set: the kernel says no for another family, or too few words."""
        return found.version in (self.version, None) and len(wanted) >= len(found.parts)

    def _used(self, name: str, found: IpSet) -> str:
        """Return the collection's name, and have it in the rule set."""
        if found.uninterpreted:
            raise NotInterpretedError(found.uninterpreted)
        remembers = name in self._written
        if name in self._deleted_from or (remembers and found.elements):
            raise NotInterpretedError(name)
        there = _IPSET + name
        if there not in self.collections:
            self.collections[there] = Collection(there, found.elements, remembers)
        return there

    def write_set(self, part: Part) -> tuple[Step, ...]:
        """Read ``-j SET``."""
        added = [option for option in part.options if option.name == "--add-set"]
        if len(added) != 1 or any(option.name not in ("--add-set", "--exist", "--timeout") for option in part.options):
            raise NotInterpretedError(part.name)
        name, flags = (plain(value) for value in added[0].values)
        found = self._known(name)
        wanted = flags.split(",")
        if not self._can_hold(found, wanted):
            return ()
        return (Remember(self._used(name, found), _key(found, wanted), _number(part, "--timeout")),)

    def recent(self, part: Part) -> Ways:
        """Read ``-m recent``, as net/netfilter/xt_recent.c does it: ``--set`` is passed by everybody."""
        options = {option.name: option for option in part.options}
        name = _RECENT + (plain(options["--name"].values[0]) if "--name" in options else "DEFAULT")
        key = (Field.DESTINATION if "--rdest" in options else Field.SOURCE,)
        self._check_recent(options, part)
        verbs = [option for option in part.options if option.name in ("--set", "--rcheck", "--update")]
        if len(verbs) != 1:
            raise NotInterpretedError(part.name)
        (verb,) = verbs
        steps: tuple[Step, ...]
        if verb.name == "--set":
            steps = (Remember(name, key), Never()) if verb.inverted else (Remember(name, key),)
        else:
            steps = (InSet(name, key, verb.inverted, _number(part, "--seconds")),)
            if verb.name == "--update":
                steps += (Remember(name, key),)
        if name not in self.collections:
            self.collections[name] = Collection(name, remembers=True)
        return (steps,)

    def _check_recent(self, options: dict[str, Option], part: Part) -> None:
        """Refuse what depends on more than whether an address was seen."""
        if options.keys() & {"--remove", "--rttl"} or (_number(part, "--hitcount") or 0) > 1:
            raise NotInterpretedError(part.name)
        if "--update" in options and options["--update"].inverted:
            raise NotInterpretedError(part.name)
        if "--mask" in options:
            every_bit = (1 << WIDTHS[self.version]) - 1
            if address(options["--mask"].values[0], self.version) != every_bit:
                raise NotInterpretedError(part.name)


def _key(found: IpSet, wanted: list[str]) -> tuple[KeyPart, ...]:
    key: tuple[KeyPart, ...] = ()
    for what in zip(found.parts, wanted, strict=False):  # words beyond the set's parts say nothing
        if what not in _FIELDS:
            raise NotInterpretedError(what[1])
        key += _FIELDS[what]
    return key


def _number(part: Part, name: str) -> int | None:
    for option in part.options:
        if option.name == name:
            return number(plain(option.values[0]), ALL_BITS)
    return None
