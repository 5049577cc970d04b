"""Decodes the JSON of a listing into tables, chains, rules, sets and maps; an error names the object.

Expressions stay as they are. Elements stay undecoded until they are needed: they are most of a large capture.
"""

from typing import Any, NoReturn

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from knft.errors import CaptureError

SCHEMA_VERSION = 1
TableId = tuple[str, str]
"""Family and name."""


class Metainfo(Struct, frozen=True):
    """The version of the listing's schema."""

    json_schema_version: int = SCHEMA_VERSION


class ListedTable(Struct, frozen=True):
    """A table; ``flags`` is one flag or a list of flags."""

    family: str
    name: str
    flags: str | list[str] = ""

    @property
    def id(self) -> TableId:
        """Its family and name."""
        return self.family, self.name

    @property
    def is_dormant(self) -> bool:
        """Whether the kernel skips its base chains; libnftables 1.0.6 lists only the first letter of the flag."""
        words = [self.flags] if isinstance(self.flags, str) else self.flags
        return any(word in ("dormant", "d") for word in words)


class ListedChain(Struct, frozen=True):
    """A chain; a regular chain has no ``hook``."""

    family: str
    table: str
    name: str
    hook: str | None = None
    type: str | None = None
    prio: int | str | None = None
    policy: str | None = None


class ListedRule(Struct, frozen=True):
    """A rule; ``expr`` are its statements."""

    family: str
    table: str
    chain: str
    expr: list[Any]
    handle: int = 0
    comment: str = ""


class ListedSetOrMap(Struct, frozen=True):
    """A set or a map; ``elements`` decodes ``elem``."""

    family: str
    table: str
    name: str
    flags: str | list[str] = ""
    timeout: int | None = None
    elem: Raw = Raw(b"[]")

    @property
    def is_dynamic(self) -> bool:
        """Whether it has the flag ``dynamic``, which libnftables 1.0.6 never lists."""
        return "dynamic" in ([self.flags] if isinstance(self.flags, str) else self.flags)

    def elements(self) -> list[Any]:
        """Return its elements as nft lists them."""
        return msgspec.json.decode(self.elem, type=list[Any])


class _Item(Struct, frozen=True):
    """One object of the listing; kinds that have no effect on packets by themselves are ignored."""

    metainfo: Metainfo | UnsetType = UNSET
    table: ListedTable | UnsetType = UNSET
    chain: ListedChain | UnsetType = UNSET
    rule: ListedRule | UnsetType = UNSET
    set: ListedSetOrMap | UnsetType = UNSET
    map: ListedSetOrMap | UnsetType = UNSET
    meter: ListedSetOrMap | UnsetType = UNSET


class _Listing(Struct, frozen=True):
    nftables: list[Raw]


class ListedRuleset(Struct, frozen=True):
    """The objects of some families, in order, each with its number in the listing, from 1."""

    tables: tuple[ListedTable, ...]
    chains: tuple[tuple[int, ListedChain], ...]
    rules: tuple[tuple[int, ListedRule], ...]
    sets_and_maps: tuple[tuple[int, ListedSetOrMap], ...]


_COMMANDS = frozenset({"add", "insert", "replace", "create", "delete", "destroy", "flush", "list", "reset", "rename"})
_item_decoder = msgspec.json.Decoder(_Item)
# RecursionError: the nesting exceeds the interpreter's stack. UnicodeError: the text is not UTF-8.
_DECODING_ERRORS = (msgspec.MsgspecError, UnicodeError, RecursionError)


def decode_ruleset(listing: bytes | str, families: frozenset[str]) -> ListedRuleset:
    """Return the listed objects of these families; raise CaptureError."""
    items = [(number, _decode_item(number, raw)) for number, raw in enumerate(_decode_objects(listing), start=1)]
    if all(item.metainfo is UNSET for _, item in items):
        msg = "empty, without the metainfo that `nft -j list ruleset` prints first; run nft as root"
        raise CaptureError(msg)
    for number, item in items:
        version = item.metainfo.json_schema_version if item.metainfo is not UNSET else SCHEMA_VERSION
        if version != SCHEMA_VERSION:
            place = f"object {number} (metainfo)"
            raise capture_error(place, f"json_schema_version is {version}, only {SCHEMA_VERSION} is supported")
    return ListedRuleset(
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


def _decode_objects(listing: bytes | str) -> list[Raw]:
    """Return the objects of the listing, undecoded."""
    if not listing.strip():
        msg = "empty, expected the output of `nft -j list ruleset`"
        raise CaptureError(msg)
    try:
        return msgspec.json.decode(listing, type=_Listing).nftables
    except msgspec.ValidationError as error:
        msg = f'not the output of `nft -j list ruleset`, {{"nftables": [...]}}: {error}'
        raise CaptureError(msg) from error
    except _DECODING_ERRORS as error:
        raise CaptureError(_decoding_error_text(error)) from error


def _decoding_error_text(error: BaseException) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply for the output of nft"
    if "truncated" in str(error):
        return "the JSON is truncated; capture the rule set again"
    return f"not JSON, expected the output of `nft -j list ruleset`: {error}"


def _decode_item(number: int, raw: Raw) -> _Item:
    try:
        item = _item_decoder.decode(raw)
    except _DECODING_ERRORS as error:
        _raise_decoding_error(number, raw, error)
    if item == _EMPTY_ITEM:
        _check_kind(number, raw)
    return item


_EMPTY_ITEM = _Item()


def _check_kind(number: int, raw: Raw) -> None:
    """Raise CaptureError if an object without a known kind is a command, or has not exactly one name."""
    try:
        kinds = set(msgspec.json.decode(raw, type=dict[str, Raw]))
    except _DECODING_ERRORS as error:
        _raise_decoding_error(number, raw, error)
    if commands := sorted(kinds & _COMMANDS):
        place = f"object {number}"
        raise capture_error(place, f'"{commands[0]}" is a command for nft, not an object of a listing')
    if len(kinds) != 1:
        place = f"object {number}"
        raise capture_error(place, f"has {len(kinds)} names, expected one")


def _raise_decoding_error(number: int, raw: Raw, error: BaseException) -> NoReturn:
    """Raise CaptureError with the object's number, and with its names if they can be decoded."""
    message = "nested too deeply" if isinstance(error, RecursionError) else str(error)
    raise capture_error(_undecoded_object_place(number, raw), message) from error


class _Identity(Struct, frozen=True):
    """The names of an object, decoded apart from its other fields."""

    family: Any = None
    table: Any = None
    chain: Any = None
    name: Any = None
    handle: Any = None


def _undecoded_object_place(number: int, raw: Raw) -> str:
    try:
        kind, names = next(iter(msgspec.json.decode(raw, type=dict[str, _Identity]).items()))
    except (*_DECODING_ERRORS, StopIteration):
        return f"object {number}"
    return object_place(number, kind, (names.family, names.table, names.chain or names.name), names.handle)


def object_place(number: int, kind: str, names: tuple[object, ...], handle: object = None) -> str:
    """Return the place of an object in the listing, such as ``object 2 (chain ip t c)``."""
    words = [word for word in names if isinstance(word, str)]
    if isinstance(handle, int) and handle:
        words.append(f"handle {handle}")
    return f"object {number} ({' '.join([kind, *words])})"


def capture_error(place: str, problem: object) -> CaptureError:
    """Return an error whose message starts with the place of the object."""
    return CaptureError(f"{place}: {problem}")
