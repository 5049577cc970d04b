"""Mutations of manifests: values, lines and bytes are moved, removed, repeated, or replaced by hostile ones."""

import json
import random
import re
from typing import Any

import yaml

from knft.source.yaml_documents import load

HOSTILE_VALUES: tuple[Any, ...] = (
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


def mutate(rng: random.Random, seeds: list[bytes]) -> bytes:
    """Return a random mutation of one of the seeds."""
    data = rng.choice(seeds)
    for _ in range(rng.choice((1, 1, 2, 3, 5))):
        data = rng.choice((_mutate_values, _mutate_values, _mutate_values, _mutate_bytes, _mutate_lines, _splice))(
            rng, data, seeds
        )
    return data[:40_000]


def _mutate_values(rng: random.Random, data: bytes, seeds: list[bytes]) -> bytes:
    """Replace some values of the documents."""
    try:
        documents = [document.value for document in load(data)]
    except Exception:  # noqa: BLE001 - invalid YAML is mutated as bytes
        return _mutate_bytes(rng, data, seeds)
    for _ in range(rng.randint(1, 4)):
        documents = _mutate_value(rng, documents, 0)
    try:
        if rng.random() < 0.5 and documents:
            return json.dumps(documents[0]).encode()
        return yaml.safe_dump_all(documents, allow_unicode=rng.random() < 0.5).encode()
    except Exception:  # noqa: BLE001 - values that cannot be serialised
        return data


def _mutate_value(rng: random.Random, value: Any, depth: int) -> Any:
    if isinstance(value, list | dict) and value and (depth == 0 or rng.random() < 0.93):
        return _mutate_item(rng, value, depth)
    return rng.choice((rng.choice(HOSTILE_VALUES), [value], [value, value], {"a": value}, str(value)))


def _mutate_item(rng: random.Random, value: Any, depth: int) -> Any:
    copy = value.copy()
    key = rng.choice(range(len(value)) if isinstance(value, list) else list(value))
    match rng.randrange(20):
        case 0 if depth:
            del copy[key]
        case 1 if isinstance(copy, list):
            copy.append(copy[key])
        case 2 if isinstance(copy, dict):
            copy[str(rng.choice(HOSTILE_VALUES))] = copy.pop(key)
        case _:
            copy[key] = _mutate_value(rng, copy[key], depth + 1)
    return copy


def _mutate_bytes(rng: random.Random, data: bytes, _seeds: list[bytes]) -> bytes:
    """Remove, insert or overwrite a few bytes."""
    start = rng.randint(0, len(data))
    end = min(len(data), start + rng.choice((0, 0, 1, 1, 4, 40, len(data))))
    new = rng.choice((b"", rng.randbytes(rng.randint(1, 4)), rng.choice(FRAGMENTS), rng.choice(FRAGMENTS)))
    return data[:start] + new * rng.choice((1, 1, 1, 1, 2, 200)) + data[end:]


def _mutate_lines(rng: random.Random, data: bytes, _seeds: list[bytes]) -> bytes:
    """Repeat, indent, remove or replace a line, or replace its value."""
    lines = data.split(b"\n")
    index = rng.randrange(len(lines))
    line = lines[index]
    hostile = str(rng.choice(HOSTILE_VALUES)).encode(errors="replace")
    replaced = re.sub(rb": .*", b": " + hostile.replace(b"\\", b"/"), line)
    forms: tuple[list[bytes], ...] = (
        [],
        [line, line],
        [b"  " + line],
        [line[1:]],
        [replaced],
        [replaced],
        [rng.choice(lines)],
    )
    lines[index : index + 1] = rng.choice(forms)
    return b"\n".join(lines)


def _splice(rng: random.Random, data: bytes, seeds: list[bytes]) -> bytes:
    """Insert a part of another seed, or append it as a document."""
    other = rng.choice(seeds)
    start, end = sorted((rng.randint(0, len(other)), rng.randint(0, len(other))))
    position = rng.randint(0, len(data))
    return rng.choice((data + b"\n---\n" + other, data[:position] + other[start:end] + data[position:]))
