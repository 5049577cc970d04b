"""Mutations that know what a manifest looks like: lines, words and values change places, and evil ones come in."""

import json
import random
import re
from typing import Any

import yaml

from knft.source.yaml_documents import load

EVIL: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 80, 65535, 65536, 70000, 2**63, 2**64, 10**40, 1.5, float("inf"), float("nan"),
    1e+308, "", " ", "None", "null", "0", "080", "0x50", "1e3", "on", "~", "a" * 64, "a" * 254, "é", "🙂", "\n",
    "\x85", '"} ; flush ruleset', "0.0.0.0",  # noqa: S104 - nothing is bound
    "127.0.0.1", "255.255.255.255", "10.96.0.10", "10.096.0.10", "::",
    "::1", "fe80::1%eth0", "::ffff:10.0.0.1", "fd00::1", "0.0.0.0/0", "::/0", "10.0.0.0/8", "10.0.0.1/33",
    "fd00::/129", "IPv4", "IPv6", "FQDN", "TCP", "UDP", "SCTP", "Local", "Cluster", "ClientIP", "NodePort",
    "LoadBalancer", "ExternalName", "2026-01-01T00:00:00Z", "0001-01-01T00:00:00+23:59",
    "9999-12-31T23:59:59-23:59", [], {}, [None], [[]], [{}], {"": None}, {"name": None},
    ["10.96.0.10", "fd00::10"],
)  # fmt: skip
FRAGMENTS = (
    b"\n", b"---\n", b"...\n", b"\t", b": ", b"- ", b"? ", b"&a ", b"*a", b"<<: *a\n", b"!!str ", b"!x ", b"|\n",
    b">-\n", b"{", b"}", b"[", b"]", b'"', b"'", b"#", b"%YAML 1.1\n", b"@", b"\x00", b"\xff", b"\xef\xbb\xbf",
    b"\xed\xa0\x80", b"\\ud800", b"kind: List\nitems:\n", b"null", b"~", b".nan", b"0o7", b"010", b"1_0", b"1:2",
)  # fmt: skip


def mutated(chance: random.Random, seeds: list[bytes]) -> bytes:
    """Return a file made out of the seeds."""
    data = chance.choice(seeds)
    for _ in range(chance.choice((1, 1, 2, 3, 5))):
        data = chance.choice((_values, _values, _values, _bytes, _lines, _splice))(chance, data, seeds)
    return data[:40_000]


def _values(chance: random.Random, data: bytes, seeds: list[bytes]) -> bytes:
    """Replace some values of the documents."""
    try:
        documents = [document.value for document in load(data)]
    except Exception:  # noqa: BLE001 - what cannot be read is mutated as bytes
        return _bytes(chance, data, seeds)
    for _ in range(chance.randint(1, 4)):
        documents = _changed(chance, documents, 0)
    try:
        if chance.random() < 0.5 and documents:
            return json.dumps(documents[0]).encode()
        return yaml.safe_dump_all(documents, allow_unicode=chance.random() < 0.5).encode()
    except Exception:  # noqa: BLE001 - values that cannot be written
        return data


def _changed(chance: random.Random, value: Any, depth: int) -> Any:
    if isinstance(value, list | dict) and value and (depth == 0 or chance.random() < 0.93):
        return _inside(chance, value, depth)
    return chance.choice((chance.choice(EVIL), [value], [value, value], {"a": value}, str(value)))


def _inside(chance: random.Random, value: Any, depth: int) -> Any:
    copy = value.copy()
    key = chance.choice(range(len(value)) if isinstance(value, list) else list(value))
    match chance.randrange(20):
        case 0 if depth:
            del copy[key]
        case 1 if isinstance(copy, list):
            copy.append(copy[key])
        case 2 if isinstance(copy, dict):
            copy[str(chance.choice(EVIL))] = copy.pop(key)
        case _:
            copy[key] = _changed(chance, copy[key], depth + 1)
    return copy


def _bytes(chance: random.Random, data: bytes, _seeds: list[bytes]) -> bytes:
    """Cut, insert or overwrite a few bytes."""
    start = chance.randint(0, len(data))
    end = min(len(data), start + chance.choice((0, 0, 1, 1, 4, 40, len(data))))
    new = chance.choice(
        (b"", chance.randbytes(chance.randint(1, 4)), chance.choice(FRAGMENTS), chance.choice(FRAGMENTS))
    )
    return data[:start] + new * chance.choice((1, 1, 1, 1, 2, 200)) + data[end:]


def _lines(chance: random.Random, data: bytes, _seeds: list[bytes]) -> bytes:
    """Move, double, indent or drop a line, or replace its value."""
    lines = data.split(b"\n")
    index = chance.randrange(len(lines))
    line = lines[index]
    evil = str(chance.choice(EVIL)).encode(errors="replace")
    other = re.sub(rb": .*", b": " + evil.replace(b"\\", b"/"), line)
    forms: tuple[list[bytes], ...] = (
        [],
        [line, line],
        [b"  " + line],
        [line[1:]],
        [other],
        [other],
        [chance.choice(lines)],
    )
    lines[index : index + 1] = chance.choice(forms)
    return b"\n".join(lines)


def _splice(chance: random.Random, data: bytes, seeds: list[bytes]) -> bytes:
    """Put a part of another file into this one."""
    other = chance.choice(seeds)
    start, end = sorted((chance.randint(0, len(other)), chance.randint(0, len(other))))
    place = chance.randint(0, len(data))
    return chance.choice((data + b"\n---\n" + other, data[:place] + other[start:end] + data[place:]))
