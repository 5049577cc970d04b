"""SetReader: decodes one set or map from the buffers of ``set_elements.dump_elements``.

    declaration: NFTA_SET_FLAGS, NFTA_SET_KEY_TYPE, NFTA_SET_DATA_TYPE and others, numbers in network byte order
    elements:    NFTA_SET_ELEM_LIST_ELEMENTS { NFTA_LIST_ELEM { key, value, comment, ... }, ... }
    a key:       NFTA_DATA_VALUE { its parts }, see ``set_keys``

The kernel stores an interval of a set without concatenations as two elements: the first address, and the first address
behind it with NFT_SET_ELEM_INTERVAL_END. An element of a concatenation has NFTA_SET_ELEM_KEY_END instead.
"""

import hashlib
import struct
from collections.abc import Iterable, Iterator

from knft.kernel import netlink_messages
from knft.kernel import set_element_messages as messages
from knft.kernel.set_keys import HOST_NUMBER, INTEGER, IPV4, IPV6, KEY_PARTS, PORT, PRIORITY, KeyCodec, split_type
from knft.kernel.worker_messages import SetPart
from knft.nft.codec.elements import FOREIGN_VERDICT
from knft.nft.expressions import Drop, Goto, Jump, Verdict
from knft.nft.objects import ArrayName, Contents, ElementTimeout, Entry, Key
from knft.nft.packed_array import EndpointIdFormat, PackedArray, SlotFormat, TargetFormat

_SET_FLAGS, _KEY_TYPE, _DATA_TYPE, _EXPRESSION, _EXPRESSIONS = 3, 4, 6, 17, 18  # NFTA_SET_...
_INTERVAL, _MAP, _TIMEOUT, _OBJECT_MAP = 0x4, 0x8, 0x10, 0x40  # NFT_SET_...
_VERDICT_DATA = 0xFFFFFF00  # NFT_DATA_VERDICT
_ELEMENTS = 3  # NFTA_SET_ELEM_LIST_ELEMENTS
_ELEMENT = 1  # NFTA_LIST_ELEM
_KEY, _DATA, _FLAGS, _ELEMENT_TIMEOUT, _EXPIRATION, _USER_DATA, _KEY_END = 1, 2, 3, 4, 5, 6, 10  # NFTA_SET_ELEM_...
_INTERVAL_END = 0x1  # NFT_SET_ELEM_INTERVAL_END
_VALUE, _VERDICT = 1, 2  # NFTA_DATA_...
_CODE, _CHAIN = 1, 2  # NFTA_VERDICT_...
_JUMP, _GOTO, _DROP = 0xFFFFFFFD, 0xFFFFFFFC, 0
_COMMENT = 0  # NFTNL_UDATA_SET_ELEM_COMMENT
_INDEXED_TYPES = ((IPV4, PORT), (IPV6, PORT), (PRIORITY,))
"""The types of targets and of endpoint IDs."""
_INDEXES = 1 << 16
"""Indexes are less than this."""

_HEAD = struct.Struct("=HH")
_NUMBER, _MILLISECONDS = struct.Struct(">I"), struct.Struct(">Q")

_Element = dict[int, bytes]
"""The attributes of an element."""


_NO_KEYS = KeyCodec(())


def _number(raw: bytes) -> int:
    return int(_NUMBER.unpack(raw.rjust(_NUMBER.size, b"\0"))[0])


class SetReader:
    """Collects the elements of one set or map, and then adds them to a table's contents."""

    def __init__(self, name: str) -> None:
        """Start without elements."""
        self.name = name
        self._kind: _Kind = _Unreadable(_NO_KEYS)
        self._is_readable = True
        self._has_changed = False
        self._digest = hashlib.blake2b(digest_size=16)

    @property
    def digest(self) -> bytes:
        """The digest of the declaration and the elements, in the order in which the kernel listed them.

        If packets change the elements' counters, it is that of the keys.
        """
        if self._kind.has_counters:
            return hashlib.blake2b(repr(sorted(self._kind.keys())).encode(), digest_size=16).digest()
        return self._digest.digest()

    @property
    def may_be_incomplete(self) -> bool:
        """Whether a transaction was committed during the dump, or the kernel listed an element twice.

        It repeats some elements and omits others while it moves them to a hash table of another size.
        """
        return self._has_changed or self._kind.has_repeats

    def receive(self, part: SetPart) -> None:
        """Add one part of a dump."""
        self._has_changed |= part.has_changed
        for kind, data in messages.contents(part.buffer):
            self._digest.update(data)
            if kind == messages.NEW_SET:
                self._kind = _kind_of(data)
            elif self._is_readable:
                self._is_readable = self._can_read(data)

    def _can_read(self, data: bytes) -> bool:
        try:
            for number, start, end in netlink_messages.attributes(data):
                if number == _ELEMENTS:
                    self._kind.add_list(data[start:end])
        except (ValueError, KeyError, IndexError, struct.error):
            return False
        return True

    def add_to(self, contents: Contents) -> bool:
        """Add the elements; return False, without adding any, if knft never writes such elements."""
        found = Contents.empty()
        try:
            if self._is_readable:
                self._kind.finish(self.name, found)
        except ValueError:
            return False
        contents.update(found)
        return self._is_readable

    def timeouts(self) -> dict[Key, ElementTimeout]:
        """Return the elements of a dynamic set that are not about to expire."""
        return self._kind.elements if isinstance(self._kind, _Dynamic) and self._is_readable else {}


def _kind_of(declaration: bytes) -> "_Kind":
    """Return the reader for a declaration."""
    fields = netlink_messages.payloads(declaration, 0, len(declaration))
    flags, key, data = (_number(fields.get(number, b"")) for number in (_SET_FLAGS, _KEY_TYPE, _DATA_TYPE))
    key_types, value_types = split_type(key), split_type(data)
    if not key_types or not KEY_PARTS.keys() >= set(key_types) or flags & _OBJECT_MAP:
        return _Unreadable(_NO_KEYS)
    keys = KeyCodec(tuple(KEY_PARTS[number] for number in key_types))
    match bool(flags & _MAP), flags & (_INTERVAL | _TIMEOUT):
        case False, 0 if fields.keys() & {_EXPRESSION, _EXPRESSIONS}:
            return _CountingMembers(keys)
        case False, special:
            return {0: _Members, _INTERVAL: _Intervals, _TIMEOUT: _Dynamic}.get(special, _Unreadable)(keys)
        case True, 0 if data == _VERDICT_DATA:
            return _Verdicts(keys)
        case True, 0 if value_types in _INDEXED_TYPES and key_types[-1] == INTEGER:
            return _Arrays(keys, KeyCodec(tuple(KEY_PARTS[number] for number in value_types)))
        case _:
            return _Unreadable(_NO_KEYS)


class _Kind:
    """The elements of a container; ``add_list`` and ``finish`` raise ValueError if knft never writes them."""

    has_repeats = False
    has_counters = False
    """Whether packets change what the kernel lists."""

    def __init__(self, keys: KeyCodec) -> None:
        """Start without elements."""
        self._keys = keys

    def add_list(self, elements: bytes) -> None:
        """Add a list of elements."""
        for kind, start, end in netlink_messages.attributes(elements):
            if kind == _ELEMENT:
                self.add(netlink_messages.payloads(elements, start, end))

    def add(self, element: _Element) -> None:
        """Add an element."""
        raise NotImplementedError

    def keys(self) -> Iterable[Key]:
        """Return the keys of the elements of a set with counters."""
        raise NotImplementedError

    def finish(self, name: str, contents: Contents) -> None:
        """Add the elements to the contents of the table."""
        raise NotImplementedError


class _Unreadable(_Kind):
    """A set or map of a type that knft does not declare."""

    def add(self, element: _Element) -> None:
        del element
        msg = "unexpected type"
        raise ValueError(msg)

    def finish(self, name: str, contents: Contents) -> None:
        """Add nothing."""


def _raw_value(data: bytes) -> bytes:
    """Return the bytes of a key or value."""
    if data[: _HEAD.size] != _HEAD.pack(len(data), _VALUE):
        data = netlink_messages.payloads(data, 0, len(data)).get(_VALUE, b"")
        if not data:
            msg = "neither a key nor a value"
            raise ValueError(msg)
        return data
    return data[_HEAD.size :]


def _attribute_head(kind: int, size: int) -> bytes:
    return _HEAD.pack(_HEAD.size + size, kind)


class _Members(_Kind):
    """The elements of a set without intervals and timeouts."""

    def __init__(self, keys: KeyCodec) -> None:
        self._keys = keys
        self._members: set[Key] = set()

    def add(self, element: _Element) -> None:
        key = self._keys.decode(_raw_value(element[_KEY]))
        self.has_repeats |= key in self._members
        self._members.add(key)

    def finish(self, name: str, contents: Contents) -> None:
        contents.members.update((name, key) for key in self._members)


class _CountingMembers(_Members):
    """The elements of a set whose elements count packets."""

    has_counters = True

    def keys(self) -> Iterable[Key]:
        return self._members


class _Verdicts(_Kind):
    """The elements of a verdict map."""

    def __init__(self, keys: KeyCodec) -> None:
        self._keys = keys
        self._entries: dict[Key, Entry] = {}
        self._verdicts: dict[bytes, Verdict | None] = {}
        """The verdicts by their bytes: many elements have the same."""

    def add(self, element: _Element) -> None:
        data = element[_DATA]
        if data not in self._verdicts:
            self._verdicts[data] = _verdict(data)
        verdict = self._verdicts[data]
        entry = FOREIGN_VERDICT if verdict is None else Entry(verdict, _comment(element.get(_USER_DATA, b"")))
        key = self._keys.decode(_raw_value(element[_KEY]))
        self.has_repeats |= key in self._entries
        self._entries[key] = entry

    def finish(self, name: str, contents: Contents) -> None:
        contents.entries.update(((name, key), entry) for key, entry in self._entries.items())


def _verdict(data: bytes) -> Verdict | None:
    """Return a verdict, None if knft writes no such verdict."""
    kind, start, end = next(netlink_messages.attributes(data), (0, 0, 0))
    fields = netlink_messages.payloads(data, start, end)
    if kind != _VERDICT:
        return None
    chain = fields.get(_CHAIN, b"").rstrip(b"\0").decode(errors="replace")
    match _NUMBER.unpack(fields[_CODE])[0]:
        case code if code == _JUMP:
            return Jump(chain)
        case code if code == _GOTO:
            return Goto(chain)
        case code if code == _DROP:
            return Drop()
        case _:
            return None


def _comment(user_data: bytes) -> str:
    """Return the comment; user data are attributes with a kind and a length of one byte each."""
    start = 0
    while start + 2 <= len(user_data):
        kind, length = user_data[start], user_data[start + 1]
        if kind == _COMMENT:
            return user_data[start + 2 : start + 2 + length].rstrip(b"\0").decode(errors="replace")
        start += 2 + length
    return ""


class _Intervals(_Kind):
    """The elements of a set with intervals."""

    def __init__(self, keys: KeyCodec) -> None:
        self._keys = keys
        self._members: list[Key] = []
        self._bounds: list[tuple[bytes, bool]] = []
        """The first address of each interval, and the first one behind it (False)."""

    def add(self, element: _Element) -> None:
        first = _raw_value(element[_KEY])
        if len(self._keys.parts) > 1:
            last = _raw_value(element[_KEY_END]) if _KEY_END in element else first
            self._members.append(self._keys.decode_range(first, last))
            return
        flags = _NUMBER.unpack(element[_FLAGS])[0] if _FLAGS in element else 0
        self._bounds.append((first, not flags & _INTERVAL_END))

    def finish(self, name: str, contents: Contents) -> None:
        contents.members.update((name, key) for key in (*self._members, *self._intervals()))

    def _intervals(self) -> Iterator[Key]:
        start: bytes | None = None
        for bound, is_start in sorted(self._bounds):
            if start is not None:
                yield self._keys.decode_range(start, _previous(bound))
            start = bound if is_start else None
        if start is not None:
            yield self._keys.decode_range(start, b"\xff" * len(start))


def _previous(address: bytes) -> bytes:
    """Return the address before ``address``."""
    return (int.from_bytes(address, "big") - 1).to_bytes(len(address), "big")


class _Dynamic(_Kind):
    """The elements of a dynamic set, which rules add."""

    def __init__(self, keys: KeyCodec) -> None:
        self._keys = keys
        self.elements: dict[Key, ElementTimeout] = {}

    def add(self, element: _Element) -> None:
        timeout, expires = (
            _MILLISECONDS.unpack(element.get(number, b"\0" * _MILLISECONDS.size))[0] // 1000
            for number in (_ELEMENT_TIMEOUT, _EXPIRATION)
        )
        if timeout and expires:
            self.elements[self._keys.decode(_raw_value(element[_KEY]))] = ElementTimeout(timeout, expires)

    def finish(self, name: str, contents: Contents) -> None:
        """Add nothing: traffic adds these elements."""


class _Arrays(_Kind):
    """The elements of an endpoint map, or of a map of endpoint IDs, which may be hundreds of thousands."""

    def __init__(self, keys: KeyCodec, values: KeyCodec) -> None:
        self._keys, self._values = keys, values
        self._arrays: dict[bytes, bytearray] = {}
        """The slots by index, by the part of the key before the index."""
        self._prefix_size = keys.size - HOST_NUMBER.size
        key_head = _attribute_head(_KEY, _HEAD.size + keys.size) + _attribute_head(_VALUE, keys.size)
        self._mark = _attribute_head(_VALUE, values.size)
        """The head of a value, which begins a slot. A slot that begins with zeros has no element."""
        value_head = _attribute_head(_DATA, _HEAD.size + values.size) + self._mark
        self._slot_size = len(self._mark) + values.size
        size = len(key_head) + keys.size + len(value_head) + values.size
        head = _attribute_head(_ELEMENT, size) + key_head
        self._element_size = _HEAD.size + size
        self._constant_bytes = [
            (start + offset, bytes([byte]))
            for start, constant in ((0, head), (len(head) + keys.size, value_head))
            for offset, byte in enumerate(constant)
        ]
        skipped = len(value_head) - len(self._mark)
        self._element = struct.Struct(f"={len(head)}x{self._prefix_size}sI{skipped}x{self._slot_size}s")
        self._format = _slot_format(len(self._mark), values)

    def add_list(self, elements: bytes) -> None:
        """Add a list of elements: quickly, if all have the form in which knft writes them."""
        size, put, arrays, mark, slot_size = self._element_size, self._put, self._arrays, self._mark, self._slot_size
        count, rest = divmod(len(elements), size)
        # One comparison for each constant byte of an element, because one for each element takes five times as long.
        if rest or any(elements[offset::size] != byte * count for offset, byte in self._constant_bytes):
            super().add_list(elements)
            return
        for prefix, index, slot in self._element.iter_unpack(elements):
            array = arrays.get(prefix)
            start = index * slot_size
            if array is None or start >= len(array) or array.startswith(mark, start):
                put(prefix, index, slot)
            else:
                array[start : start + slot_size] = slot

    def add(self, element: _Element) -> None:
        key, value = _raw_value(element[_KEY]), _raw_value(element[_DATA])
        if len(key) != self._keys.size or len(value) != self._values.size:
            msg = "unexpected size of a key or value"
            raise ValueError(msg)
        self._put(key[: self._prefix_size], HOST_NUMBER.unpack(key[self._prefix_size :])[0], self._mark + value)

    def _put(self, prefix: bytes, index: int, slot: bytes) -> None:
        array = self._arrays.get(prefix)
        if array is None:
            array = self._arrays[prefix] = bytearray()
        start, end = index * self._slot_size, (index + 1) * self._slot_size
        if end > len(array):
            if index >= _INDEXES:
                msg = f"unexpected index {index}"
                raise ValueError(msg)
            array.extend(bytes(end - len(array)))
        elif array.startswith(self._mark, start):
            self.has_repeats = True
        array[start:end] = slot

    def finish(self, name: str, contents: Contents) -> None:
        prefixes = KeyCodec(self._keys.parts[:-1])
        while self._arrays:
            prefix, slots = self._arrays.popitem()
            contents.arrays[ArrayName(name, _decode_prefix(prefixes, prefix))] = PackedArray(bytes(slots), self._format)


def _slot_format(mark_size: int, values: KeyCodec) -> SlotFormat:
    address = values.parts[0]
    if address.decode_address is None:
        return EndpointIdFormat(struct.Struct(f"={mark_size}sI"), mark_size)
    # The last part of a target is a port of two bytes, which is padded.
    return TargetFormat(struct.Struct(f">{mark_size}s{address.size}sH2x"), mark_size, address.decode_address)


def _decode_prefix(codec: KeyCodec, raw: bytes) -> Key:
    """Return the beginning of a key; a single part of a longer key is padded."""
    return codec.decode(raw[: codec.size])
