"""The listing as typed objects: JSON in, tables, chains, rules and containers out, or an error with its place.

It knows what objects look like and nothing of what their expressions mean. Elements stay undecoded until they are asked
for: most of a large capture is elements.
"""

from typing import Any, NoReturn

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from knft.errors import CaptureError
from knft.interpret.nftables.problems import capture_error

SCHEMA_VERSION = 1
TableId = tuple[str, str]
"""Family and name."""


class Metainfo(Struct, frozen=True):
    """What the listing says of itself."""

    json_schema_version: int = SCHEMA_VERSION


class ListedTable(Struct, frozen=True):
    """A table; ``flags`` is a word or a list of them."""

    family: str
    name: str
    flags: str | list[str] = ""

    @property
    def id(self) -> TableId:
        """Its family and name."""
        return self.family, self.name

    @property
    def dormant(self) -> bool:
        """Whether its base chains are switched off; libnftables 1.0.6 lists the first letter of the word alone."""
        words = [self.flags] if isinstance(self.flags, str) else self.flags
        return any(word in ("dormant", "d") for word in words)


class ListedChain(Struct, frozen=True):
    """A chain; one without ``hook`` is reached by jumps alone."""

    family: str
    table: str
    name: str
    hook: str | None = None
    type: str | None = None
    prio: int | str | None = None
    policy: str | None = None


class ListedRule(Struct, frozen=True):
    """A rule: its statements as they are listed."""

    family: str
    table: str
    chain: str
    expr: list[Any]
    handle: int = 0
    comment: str = ""


class ListedContainer(Struct, frozen=True):
    """A set or a map; ``elem`` is decoded by ``elements``."""

    family: str
    table: str
    name: str
    flags: str | list[str] = ""
    timeout: int | None = None
    elem: Raw = Raw(b"[]")

    @property
    def dynamic(self) -> bool:
        """Whether it says that rules write it; libnftables 1.0.6 says so of none."""
        return "dynamic" in ([self.flags] if isinstance(self.flags, str) else self.flags)

    def elements(self) -> list[Any]:
        """Return what it holds, as it is listed."""
        return msgspec.json.decode(self.elem, type=list[Any])


class _Item(Struct, frozen=True):
    """One object of the listing; kinds that cannot decide a packet's fate by themselves are passed over."""

    metainfo: Metainfo | UnsetType = UNSET
    table: ListedTable | UnsetType = UNSET
    chain: ListedChain | UnsetType = UNSET
    rule: ListedRule | UnsetType = UNSET
    set: ListedContainer | UnsetType = UNSET
    map: ListedContainer | UnsetType = UNSET
    meter: ListedContainer | UnsetType = UNSET


class _Document(Struct, frozen=True):
    nftables: list[Raw]


class Listing(Struct, frozen=True):
    """All objects of the families that were asked for, in their order; numbers count the listing's objects from 1."""

    tables: tuple[ListedTable, ...]
    chains: tuple[tuple[int, ListedChain], ...]
    rules: tuple[tuple[int, ListedRule], ...]
    containers: tuple[tuple[int, ListedContainer], ...]


_COMMANDS = frozenset({"add", "insert", "replace", "create", "delete", "destroy", "flush", "list", "reset", "rename"})
_item_decoder = msgspec.json.Decoder(_Item)
# What decoding can raise: nesting is limited by the interpreter's stack, text by UTF-8.
_DECODING = (msgspec.MsgspecError, UnicodeError, RecursionError)


def decode(document: bytes | str, families: frozenset[str]) -> Listing:
    """Return what is listed of tables of these families; raises CaptureError."""
    items = [(number, _item(number, raw)) for number, raw in enumerate(_objects(document), start=1)]
    if all(item.metainfo is UNSET for _, item in items):
        msg = "empty, without the metainfo that `nft -j list ruleset` prints first: was it taken as root?"
        raise CaptureError(msg)
    for number, item in items:
        version = item.metainfo.json_schema_version if item.metainfo is not UNSET else SCHEMA_VERSION
        if version != SCHEMA_VERSION:
            place = f"object {number} (metainfo)"
            raise capture_error(place, f"json_schema_version is {version}, and only {SCHEMA_VERSION} is known")
    return Listing(
        tuple(it.table for _, it in items if it.table is not UNSET and it.table.family in families),
        tuple((n, it.chain) for n, it in items if it.chain is not UNSET and it.chain.family in families),
        tuple((n, it.rule) for n, it in items if it.rule is not UNSET and it.rule.family in families),
        tuple(
            (n, found)
            for n, it in items
            for found in (it.set, it.map, it.meter)
            if found is not UNSET and found.family in families
        ),
    )


def _objects(document: bytes | str) -> list[Raw]:
    """Return the listing's objects, undecoded."""
    if not document.strip():
        msg = "empty: not what `nft -j list ruleset` prints"
        raise CaptureError(msg)
    try:
        return msgspec.json.decode(document, type=_Document).nftables
    except msgspec.ValidationError as error:
        msg = f'not what `nft -j list ruleset` prints, {{"nftables": [...]}}: {error}'
        raise CaptureError(msg) from error
    except _DECODING as error:
        raise CaptureError(_said(error)) from error


def _said(error: BaseException) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply for a listing of nft"
    if "truncated" in str(error):
        return "the JSON ends in the middle: was the capture truncated?"
    return f"not JSON, which is what `nft -j list ruleset` prints: {error}"


def _item(number: int, raw: Raw) -> _Item:
    try:
        item = _item_decoder.decode(raw)
    except _DECODING as error:
        _fail(number, raw, error)
    if item == _NO_ITEM:
        _check_kind(number, raw)
    return item


_NO_ITEM = _Item()


def _check_kind(number: int, raw: Raw) -> None:
    """Raise where an object without a known kind is a command, or nothing at all."""
    try:
        kinds = set(msgspec.json.decode(raw, type=dict[str, Raw]))
    except _DECODING as error:
        _fail(number, raw, error)
    if commands := sorted(kinds & _COMMANDS):
        place = f"object {number}"
        raise capture_error(place, f'"{commands[0]}" is a command for nft, not a part of what it lists')
    if len(kinds) != 1:
        place = f"object {number}"
        raise capture_error(place, f"has {len(kinds)} names where nft lists one")


def _fail(number: int, raw: Raw, error: BaseException) -> NoReturn:
    """Raise with the object's number, and its names where they can be had."""
    what = "nested too deeply" if isinstance(error, RecursionError) else str(error)
    raise capture_error(_named(number, raw), what) from error


class _Names(Struct, frozen=True):
    """What identifies an object, whatever else is wrong with it."""

    family: Any = None
    table: Any = None
    chain: Any = None
    name: Any = None
    handle: Any = None


def _named(number: int, raw: Raw) -> str:
    try:
        kind, names = next(iter(msgspec.json.decode(raw, type=dict[str, _Names]).items()))
    except (*_DECODING, StopIteration):
        return f"object {number}"
    return place(number, kind, (names.family, names.table, names.chain or names.name), names.handle)


def place(number: int, kind: str, names: tuple[object, ...], handle: object = None) -> str:
    """Return where in a listing something stands, for people."""
    words = [word for word in names if isinstance(word, str)]
    if isinstance(handle, int) and handle:
        words.append(f"handle {handle}")
    return f"object {number} ({' '.join([kind, *words])})"
