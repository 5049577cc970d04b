"""Elements of sets and maps: encoded as JSON and text, and decoded from a listing."""

import ipaddress
import re
from collections.abc import Mapping
from typing import Any

from knft.nft.codec.statements import statement_json, statement_text
from knft.nft.expressions import Drop, Goto, Jump, Verdict
from knft.nft.objects import COMMENT_BYTES, ElementTimeout, Entry, Key, Value
from knft.protocols import PROTOCOL_NAMES, PROTOCOL_NUMBERS

FOREIGN_VERDICT = Entry(Goto(""), "")
"""Stands for a listed verdict that knft never writes. It differs from every desired entry, so a sync replaces or
removes the element."""


_SAFE_COMMENT = re.compile(r"[ !#-\[\]-~]*+")
"""Printable ASCII without double quotes and backslashes."""


def comment_text(comment: str) -> str:
    """Return a comment that all libraries accept: printable ASCII without quotes, truncated to the maximum length."""
    if _SAFE_COMMENT.fullmatch(comment):
        return comment[:COMMENT_BYTES]
    safe = "".join(c if c.isascii() and c.isprintable() and c not in '"\\' else "?" for c in comment)
    return safe[:COMMENT_BYTES]


def _part_json(part: str | int) -> Any:  # noqa: ANN401 - JSON has every type
    if isinstance(part, int):
        return part
    if "/" in part:
        address, _, length = part.partition("/")
        return {"prefix": {"addr": address, "len": int(length)}}
    # Numbers, because libnftables 1.0.6 looks names up in /etc/protocols, which slim images do not have.
    return PROTOCOL_NUMBERS.get(part, part)


def key_json(key: Key) -> Any:  # noqa: ANN401 - JSON has every type
    """Return an element's key as libnftables JSON."""
    if len(key) == 1:
        return _part_json(key[0])
    return {"concat": [_part_json(part) for part in key]}


def elements_json(elements: Mapping[Key, Value]) -> list[Any]:
    """Return the elements of one container as libnftables JSON."""
    if isinstance(next(iter(elements.values()), None), tuple):
        # The most frequent case: keys of endpoint maps are addresses and numbers, which need no conversion.
        return [[{"concat": key}, {"concat": value}] for key, value in elements.items()]
    if isinstance(next(iter(elements.values()), None), int):
        return [[{"concat": key}, value] for key, value in elements.items()]
    return [element_json(key, value) for key, value in elements.items()]


def element_json(key: Key, value: Value) -> Any:  # noqa: ANN401 - JSON has every type
    """Return an element with its value as libnftables JSON."""
    if isinstance(value, tuple):
        return [{"concat": key}, {"concat": value}]
    if isinstance(value, int):
        return [{"concat": key}, value]
    written = key_json(key)
    if value is None:
        return written
    if isinstance(value, ElementTimeout):
        return {"elem": {"val": written, "timeout": value.timeout, "expires": value.expires}}
    if value.comment:
        written = {"elem": {"val": written, "comment": comment_text(value.comment)}}
    return [written, statement_json(value.verdict)]


def element_text(key: Key, value: Value) -> str:
    """Return an element with its value as nft text."""
    written = " . ".join(map(str, key))
    if value is None:
        return written
    if isinstance(value, Entry):
        if value.comment:
            written += f' comment "{comment_text(value.comment)}"'
        return f"{written} : {statement_text(value.verdict)}"
    if isinstance(value, ElementTimeout):
        return f"{written} timeout {value.timeout}s expires {value.expires}s"
    if isinstance(value, int):
        return f"{written} : {value}"
    address, port = value
    return f"{written} : {address} . {port}"


def key_from_json(written: Any, types: list[str]) -> Key:  # noqa: ANN401 - JSON has every type
    """Return the key of a listed element; ``types`` are the key's types in the container's declaration.

    Raises ValueError, KeyError or TypeError if knft writes no such element.
    """
    if isinstance(written, dict) and "elem" in written:
        written = written["elem"]["val"]
    parts = written["concat"] if isinstance(written, dict) and "concat" in written else [written]
    return tuple(_part_from_json(part, kind) for part, kind in zip(parts, types, strict=True))


def _part_from_json(part: Any, kind: str) -> str | int:  # noqa: ANN401 - JSON has every type
    if isinstance(part, dict) and "prefix" in part:
        return f"{_part_from_json(part['prefix']['addr'], kind)}/{part['prefix']['len']}"
    if isinstance(part, int):
        return PROTOCOL_NAMES.get(part, part) if kind == "inet_proto" else part
    if isinstance(part, str):
        # inet_ntop writes some IPv6 addresses with a dotted IPv4 part, Python does not.
        return str(ipaddress.IPv6Address(part)) if ":" in part and "." in part else part
    msg = f"unexpected part of an element's key: {part!r}"
    raise ValueError(msg)


def entry_from_json(written: Any, verdict: Any) -> Entry:  # noqa: ANN401 - JSON has every type
    """Return the verdict and comment of an element of a verdict map."""
    comment = ""
    if isinstance(written, dict) and "elem" in written:
        comment = written["elem"].get("comment", "")
    found = _verdict_from_json(verdict)
    return FOREIGN_VERDICT if found is None else Entry(found, comment)


def _verdict_from_json(verdict: Any) -> Verdict | None:  # noqa: ANN401 - JSON has every type
    match verdict:
        case {"goto": {"target": str(chain)}}:
            return Goto(chain)
        case {"jump": {"target": str(chain)}}:
            return Jump(chain)
        case {"drop": None}:
            return Drop()
        case _:
            return None
