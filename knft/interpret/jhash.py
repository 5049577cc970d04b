"""The hash function of nft's ``jhash``: Bob Jenkins' lookup3, as in Linux (include/linux/jhash.h, nft_hash.c).

A register holds each part of a concatenation, padded with zeros to 4 bytes. The kernel reads the bytes as numbers in
the machine's byte order; all machines that run Kubernetes use little endian, except s390x.
"""

import sys
from collections.abc import Iterable, Iterator

_INITIAL = 0xDEADBEEF
_MASK = 0xFFFFFFFF
_WORD = 4


def hash_slot(parts: Iterable[tuple[int, int]], modulus: int, seed: int) -> int:
    """Return the number that ``jhash … mod modulus seed seed`` computes for a key.

    ``parts`` are the fields in network byte order: their values, and their sizes in bytes.
    """
    data = b"".join(_padded(value.to_bytes(size, "big")) for value, size in parts)
    return (jhash(data, seed) * modulus) >> 32


def _padded(raw: bytes) -> bytes:
    return raw + bytes(-len(raw) % _WORD)


def jhash(data: bytes, seed: int) -> int:
    """Return the kernel's ``jhash`` of some bytes: whole words, as registers hold them."""
    start = (_INITIAL + len(data) + seed) & _MASK
    a = b = c = start
    words = list(_words(data))
    while len(words) > 3:  # noqa: PLR2004 - the state has three words
        a, b, c = _mix((a + words[0]) & _MASK, (b + words[1]) & _MASK, (c + words[2]) & _MASK)
        del words[:3]
    if not words:
        return c
    first, second, third = (*words, 0, 0)[:3]
    return _final((a + first) & _MASK, (b + second) & _MASK, (c + third) & _MASK)


def _words(data: bytes) -> Iterator[int]:
    for start in range(0, len(data), _WORD):
        yield int.from_bytes(data[start : start + _WORD], sys.byteorder)


def _rotate(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (32 - bits))) & _MASK


def _mix(a: int, b: int, c: int) -> tuple[int, int, int]:
    for bits in (4, 6, 8, 16, 19, 4):
        a = ((a - c) & _MASK) ^ _rotate(c, bits)
        a, b, c = b, (c + b) & _MASK, a
    return a, b, c


def _final(a: int, b: int, c: int) -> int:
    c = ((c ^ b) - _rotate(b, 14)) & _MASK
    a = ((a ^ c) - _rotate(c, 11)) & _MASK
    b = ((b ^ a) - _rotate(a, 25)) & _MASK
    c = ((c ^ b) - _rotate(b, 16)) & _MASK
    a = ((a ^ c) - _rotate(c, 4)) & _MASK
    b = ((b ^ a) - _rotate(a, 14)) & _MASK
    return ((c ^ b) - _rotate(b, 24)) & _MASK
