"""ipsets compared by what they mean: the input of ``ipset restore -exist``, and what ``ipset save`` makes of it.

What this module does not know is an error, as in ``saved``.
"""

import ipaddress

from msgspec import Struct


class ParsedSet(Struct):
    """A set: its type, what else was said when it was made, and its entries as ``ipset save`` writes them."""

    type: str
    options: dict[str, str]
    entries: set[str]


_OPTIONS = {"family", "hashsize", "maxelem", "range"}
_CHOSEN_BY_ITSELF = {"bucketsize", "initval"}
"""What the program prints although nobody said it."""


def parse_ipsets(text: str) -> dict[str, ParsedSet]:
    """Return every set by its name; raise ValueError.

    Several inputs, one after another, come to what is there when all have been restored.
    """
    found: dict[str, ParsedSet] = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            verb, name, what, *words = line.split()
            if verb == "create":
                _create(found, name, ParsedSet(what, _options(words), set()))
            elif verb in ("add", "del") and not words:
                change = found[name].entries.add if verb == "add" else found[name].entries.discard
                change(normalized_entry(what))
            else:
                msg = f"what is {line!r}?"
                raise ValueError(msg)
    return found


def normalized_entry(entry: str) -> str:
    """Return an entry as the kernel lists it: a network of one address without its length."""
    return ",".join(map(_listed_part, entry.split(",")))


def _listed_part(part: str) -> str:
    if "/" not in part:
        return part
    network = ipaddress.ip_network(part)
    return str(network.network_address if network.num_addresses == 1 else network)


def _create(found: dict[str, ParsedSet], name: str, made: ParsedSet) -> None:
    """Make a set unless it is there; ``-exist`` asks for the same type and options even then."""
    there = found.setdefault(name, made)
    if (there.type, there.options) != (made.type, made.options):
        msg = f"{name} is there, and is made otherwise"
        raise ValueError(msg)


def _options(words: list[str]) -> dict[str, str]:
    options = dict(zip(words[::2], words[1::2], strict=True))
    unknown = options.keys() - _OPTIONS - _CHOSEN_BY_ITSELF
    if unknown:
        msg = f"{sorted(unknown)} of a set are not known here"
        raise ValueError(msg)
    return {option: value for option, value in options.items() if option in _OPTIONS}
