"""Puts the input of iptables-restore in an order that does not depend on the order in which Services are processed.

kube-proxy processes Services in the order of a hash table, and its tests sort before they compare: chains by name, and
rules of the chains that have rules of all Services by the Service port, which their comment names. The order within
a chain of one Service port, and of the rules of one port, counts.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator

_OF_ALL_SERVICES = ("KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES", "KUBE-NODEPORTS", "KUBE-PROXY-FIREWALL")
_SERVICE = re.compile(r'--comment "?([^ "]+/[^ "]+)')
_LAST = "\U0010ffff"
"""Sorts after every Service: the jumps to KUBE-NODEPORTS, which must be the last rules."""


_MOST_LINES = 300


def normalized(lines: Iterable[str]) -> list[str]:
    """Return the lines, sorted where the order does not matter; of many lines, their number and their SHA-256 digest.

    The many lines are those of large generated clusters, and would be most of the corpus.
    """
    found = _normalized(lines)
    if len(found) <= _MOST_LINES:
        return found
    digest = hashlib.sha256("\n".join(found).encode()).hexdigest()
    return [f"{len(found)} lines, SHA-256 {digest}"]


def _normalized(lines: Iterable[str]) -> list[str]:
    found: list[str] = []
    for name, table in sorted(_tables(lines)):
        found += [name, *_normalized_table(table), "COMMIT"]
    return found


def _tables(lines: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    name, table = "", list[str]()
    for line in lines:
        if line.startswith("*"):
            name, table = line, []
        elif line == "COMMIT":
            yield name, table
        elif line:
            table.append(line)


def _normalized_table(lines: list[str]) -> Iterator[str]:
    yield from sorted(line for line in lines if line.startswith(":"))
    rules = [line for line in lines if line.startswith("-A ")]
    yield from sorted(rules, key=_place)
    yield from sorted(line for line in lines if not line.startswith((":", "-A ")))


def _place(rule: str) -> tuple[str, str, str]:
    chain = rule.split(" ", 2)[1]
    if chain not in _OF_ALL_SERVICES:
        return chain, "", ""
    service = _SERVICE.search(rule)
    return (chain, _LAST, rule) if service is None else (chain, service[1], "")
