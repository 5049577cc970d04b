"""Tests of the ipset parser: equal sets are equal, different sets differ, unknown syntax is an error."""

import pytest

from tests.compat.parsed_sets import parse_ipsets
from tests.support.kube_objects import parametrize_rows

MADE = "create A hash:ip,port,net family inet hashsize 1024 maxelem 65536\n"
SAME = {
    "what the program chooses": (MADE, f"{MADE.rstrip()} bucketsize 12 initval 0x45b37c1a\n"),
    "network of one address": (f"{MADE}add A 10.0.0.1,tcp:80,10.0.0.2/32\n", f"{MADE}add A 10.0.0.1,tcp:80,10.0.0.2\n"),
    "and in IPv6": (f"{MADE}add A fd00::1,tcp:80,fd00::2/128\n", f"{MADE}add A fd00::1,tcp:80,fd00::2\n"),
    "order of entries": (f"{MADE}add A 10.0.0.1,1\nadd A 10.0.0.2,1\n", f"{MADE}add A 10.0.0.2,1\nadd A 10.0.0.1,1\n"),
    "one after another": (f"{MADE}add A 1\nadd A 2\n# why\n{MADE}del A 1\ndel A 3\nadd A 2\n", f"{MADE}add A 2\n"),
}
OTHER = {
    "name": (MADE, MADE.replace("A", "B")),
    "type": (MADE, MADE.replace(",net", ",ip")),
    "family": (MADE, MADE.replace("inet", "inet6")),
    "size": (MADE, MADE.replace("65536", "65535")),
    "entry": (f"{MADE}add A 10.0.0.1,tcp:80,10.0.0.0/8\n", f"{MADE}add A 10.0.0.1,tcp:80,10.0.0.0/9\n"),
    "network of IPv6": (f"{MADE}add A fd00::1,tcp:80,fd00::/32\n", f"{MADE}add A fd00::1,tcp:80,fd00::\n"),
}
UNKNOWN = {
    "action": f"{MADE}flush A 1",
    "option of a set": f"{MADE.rstrip()} timeout 10",
    "option of an entry": f"{MADE}add A 10.0.0.1 timeout 10",
    "option without a value": f"{MADE.rstrip()} counters",
    "set": "add A 10.0.0.1",
    "another set of the name": MADE + MADE.replace(",net", ",ip"),
    "network": f"{MADE}add A 10.0.0.1,tcp:80,10.0.0.1/8",
}


@parametrize_rows(SAME)
def test_equal_inputs(row: tuple[str, str]) -> None:
    first, second = map(parse_ipsets, row)
    assert first == second


@parametrize_rows(OTHER)
def test_different_inputs(row: tuple[str, str]) -> None:
    first, second = map(parse_ipsets, row)
    assert first != second


@parametrize_rows(UNKNOWN)
def test_unknown_syntax_is_an_error(row: str) -> None:
    with pytest.raises((ValueError, KeyError)):
        parse_ipsets(row)
