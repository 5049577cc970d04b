"""Parses ipsets in a canonical form, to compare the input of ``ipset restore -exist`` with ``ipset save`` output.

Unknown syntax is an error, as in ``parsed_rules``.
"""

import ipaddress

from msgspec import Struct


class ParsedSet(Struct):
    """A set: its type, its options, and its entries as ``ipset save`` prints them."""

    type: str
    options: dict[str, str]
    entries: set[str]


_OPTIONS = {"family", "hashsize", "maxelem", "range"}
_IGNORED_OPTIONS = {"bucketsize", "initval"}
"""Options that ipset chooses and prints."""


def parse_ipsets(text: str) -> dict[str, ParsedSet]:
    """Return every set by its name; raise ValueError.

    The result of concatenated inputs is the state after all of them have been restored in order.
    """
    sets: dict[str, ParsedSet] = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            verb, name, argument, *words = line.split()
            if verb == "create":
                _create(sets, name, ParsedSet(argument, _options(words), set()))
            elif verb in ("add", "del") and not words:
                change = sets[name].entries.add if verb == "add" else sets[name].entries.discard
                change(normalized_entry(argument))
            else:
                msg = f"unexpected line {line!r}"
                raise ValueError(msg)
    return sets


def normalized_entry(entry: str) -> str:
    """Return an entry in the kernel's form: a network of one address without its length."""
    return ",".join(map(_listed_part, entry.split(",")))


def _listed_part(part: str) -> str:
    if "/" not in part:
        return part
    network = ipaddress.ip_network(part)
    return str(network.network_address if network.num_addresses == 1 else network)


def _create(sets: dict[str, ParsedSet], name: str, new_set: ParsedSet) -> None:
    """Create a set unless it exists; ``-exist`` requires that an existing set has the same type and options."""
    existing = sets.setdefault(name, new_set)
    if (existing.type, existing.options) != (new_set.type, new_set.options):
        msg = f"set {name!r} exists with another type or other options"
        raise ValueError(msg)


def _options(words: list[str]) -> dict[str, str]:
    options = dict(zip(words[::2], words[1::2], strict=True))
    unknown = options.keys() - _OPTIONS - _IGNORED_OPTIONS
    if unknown:
        msg = f"unknown options of a set: {sorted(unknown)}"
        raise ValueError(msg)
    return {option: value for option, value in options.items() if option in _OPTIONS}
