"""Reads matches and targets that look up or change collections: ipsets, and the lists of the match ``recent``."""

import re
from collections.abc import Mapping

from knft.errors import CaptureError
from knft.families import IpVersion
from knft.interpret.alternatives import ALWAYS, Alternatives, all_of
from knft.interpret.errors import NotInterpretedError, abbreviated
from knft.interpret.iptables.arguments import Extension, Option
from knft.interpret.iptables.ipsets import IpSet
from knft.interpret.iptables.numbers import ALL_BITS, WIDTHS, address, number
from knft.interpret.iptables.quoting import unquote
from knft.interpret.rules import AddToSet, Collection, Field, InSet, KeyPart, Never, Step

_SET_WRITES = re.compile(r"--(add|del)-set +(\S+)")
_IPSET, _RECENT = "ipset ", "recent "

_FIELDS: dict[tuple[str, str], tuple[KeyPart, ...]] = {
    ("ip", "src"): (Field.SOURCE,),
    ("ip", "dst"): (Field.DESTINATION,),
    ("net", "src"): (Field.SOURCE,),
    ("net", "dst"): (Field.DESTINATION,),
    ("port", "src"): (Field.PROTOCOL, Field.SOURCE_PORT),
    ("port", "dst"): (Field.PROTOCOL, Field.DESTINATION_PORT),
}
"""The fields of a packet that are looked up, by dimension of the set and direction in the rule."""


class Lookups:
    """The ipsets of a capture, and the collections that its rules use."""

    def __init__(self, version: IpVersion, sets: Mapping[str, IpSet], rules: str) -> None:
        """Take the ipsets, and the text of all rules, to find the ipsets that rules write."""
        self.version = version
        self._sets = sets
        written = _SET_WRITES.findall(rules) if "-set" in rules else []
        self._written_sets = {name for _, name in written}
        self._deleted_from = {name for verb, name in written if verb == "del"}
        self.collections: dict[str, Collection] = {}

    def match_set(self, extension: Extension) -> Alternatives:
        """Read ``-m set``."""
        return all_of([self._match_option(option) for option in extension.options])

    def _match_option(self, option: Option) -> Alternatives:
        if option.name in ("--update-counters", "--update-subcounters"):
            return ALWAYS
        if option.name != "--match-set":
            raise NotInterpretedError(option.name)
        name, flags = (unquote(value) for value in option.values)
        ipset = self._ipset(name)
        directions = flags.split(",")
        if not self._can_match(ipset, directions):
            return ((),) if option.inverted else ((Never(),),)
        return ((InSet(self._add_collection(name, ipset), _key(ipset, directions), option.inverted),),)

    def _ipset(self, name: str) -> IpSet:
        ipset = self._sets.get(name)
        if ipset is None:
            msg = f"unknown ipset {abbreviated(name)}: pass the output of `ipset save`, too"
            raise CaptureError(msg)
        return ipset

    def _can_match(self, ipset: IpSet, directions: list[str]) -> bool:
        """Return whether a set can match: the kernel needs the packet's family, and a direction for each dimension."""
        return ipset.version in (self.version, None) and len(directions) >= len(ipset.parts)

    def _add_collection(self, name: str, ipset: IpSet) -> str:
        """Return the name of the collection, and add it to ``collections``."""
        if ipset.uninterpreted:
            raise NotInterpretedError(ipset.uninterpreted)
        is_dynamic = name in self._written_sets
        if name in self._deleted_from or (is_dynamic and ipset.elements):
            raise NotInterpretedError(name)
        collection = _IPSET + name
        if collection not in self.collections:
            self.collections[collection] = Collection(collection, ipset.elements, is_dynamic)
        return collection

    def write_set(self, extension: Extension) -> tuple[Step, ...]:
        """Read ``-j SET``."""
        added = [option for option in extension.options if option.name == "--add-set"]
        if len(added) != 1 or any(
            option.name not in ("--add-set", "--exist", "--timeout") for option in extension.options
        ):
            raise NotInterpretedError(extension.name)
        name, flags = (unquote(value) for value in added[0].values)
        ipset = self._ipset(name)
        directions = flags.split(",")
        if not self._can_match(ipset, directions):
            return ()
        return (AddToSet(self._add_collection(name, ipset), _key(ipset, directions), _number(extension, "--timeout")),)

    def match_recent(self, extension: Extension) -> Alternatives:
        """Read ``-m recent`` (net/netfilter/xt_recent.c); every packet passes ``--set``."""
        options = {option.name: option for option in extension.options}
        name = _RECENT + (unquote(options["--name"].values[0]) if "--name" in options else "DEFAULT")
        key = (Field.DESTINATION if "--rdest" in options else Field.SOURCE,)
        self._check_recent(options, extension)
        verbs = [option for option in extension.options if option.name in ("--set", "--rcheck", "--update")]
        if len(verbs) != 1:
            raise NotInterpretedError(extension.name)
        (verb,) = verbs
        steps: tuple[Step, ...]
        if verb.name == "--set":
            steps = (AddToSet(name, key), Never()) if verb.inverted else (AddToSet(name, key),)
        else:
            steps = (InSet(name, key, verb.inverted, _number(extension, "--seconds")),)
            if verb.name == "--update":
                steps += (AddToSet(name, key),)
        if name not in self.collections:
            self.collections[name] = Collection(name, is_dynamic=True)
        return (steps,)

    def _check_recent(self, options: dict[str, Option], extension: Extension) -> None:
        """Raise NotInterpretedError for options that need more than whether an address is in the list."""
        if options.keys() & {"--remove", "--rttl"} or (_number(extension, "--hitcount") or 0) > 1:
            raise NotInterpretedError(extension.name)
        if "--update" in options and options["--update"].inverted:
            raise NotInterpretedError(extension.name)
        if "--mask" in options:
            full_mask = (1 << WIDTHS[self.version]) - 1
            if address(options["--mask"].values[0], self.version) != full_mask:
                raise NotInterpretedError(extension.name)


def _key(ipset: IpSet, directions: list[str]) -> tuple[KeyPart, ...]:
    key: tuple[KeyPart, ...] = ()
    for dimension_and_direction in zip(ipset.parts, directions, strict=False):  # the kernel ignores further directions
        if dimension_and_direction not in _FIELDS:
            raise NotInterpretedError(dimension_and_direction[1])
        key += _FIELDS[dimension_and_direction]
    return key


def _number(extension: Extension, name: str) -> int | None:
    for option in extension.options:
        if option.name == name:
            return number(unquote(option.values[0]), ALL_BITS)
    return None
