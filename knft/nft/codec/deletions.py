"""Encodes the deletion of whole objects of a table; knft deletes foreign objects so.

libnftables 1.0.6 aborts when it is to delete a ``ct timeout`` or ``ct expectation`` through JSON, and refuses a
``synproxy`` or ``secmark``; as nft text it deletes all of them.
"""

import re
from collections.abc import Sequence

import msgspec

from knft.families import NftFamily
from knft.nft.objects import NamedObject

TEXT_KINDS = frozenset({"ct timeout", "ct expectation", "synproxy", "secmark"})
"""The kinds of objects that are deleted as nft text."""

_TEXT_NAME = re.compile(r"[A-Za-z][A-Za-z0-9/\\_.]*")
"""A name as nft's text grammar has it."""


def deletion_commands(
    family: NftFamily, table: str, objects: Sequence[NamedObject], flushed_chains: Sequence[str] = ()
) -> str:
    """Return the commands that remove all rules of some chains and then delete ``objects``, in this order.

    Raises ValueError if an object can only be deleted as text, and its name cannot be written so.
    """
    if TEXT_KINDS.isdisjoint(each.kind for each in objects):
        return _json_commands(family, table, objects, flushed_chains)
    lines = [f"flush chain {family} {table} {_text_name(name)}" for name in flushed_chains]
    lines += [f"delete {each.kind} {family} {table} {_text_name(each.name)}" for each in objects]
    return "\n".join(lines) + "\n"


def _json_commands(family: NftFamily, table: str, objects: Sequence[NamedObject], flushed_chains: Sequence[str]) -> str:
    where = {"family": family, "table": table}
    flushes = [{"flush": {"chain": where | {"name": name}}} for name in flushed_chains]
    deletions = [{"delete": {each.kind: where | {"name": each.name}}} for each in objects]
    return msgspec.json.encode({"nftables": flushes + deletions}).decode()


def _text_name(name: str) -> str:
    if _TEXT_NAME.fullmatch(name) is None:
        msg = f"nft's text grammar has no such name: {name!r}"
        raise ValueError(msg)
    return name
