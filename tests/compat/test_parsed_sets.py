"""Tests of the ipset parser: equal sets are equal, different sets differ, unknown syntax is an error."""

import pytest

from tests.compat.parsed_sets import parse_ipsets
from tests.support.kube_objects import parametrize_cases

CREATE = "create A hash:ip,port,net family inet hashsize 1024 maxelem 65536\n"
EQUAL = {
    "options chosen by ipset": (CREATE, f"{CREATE.rstrip()} bucketsize 12 initval 0x45b37c1a\n"),
    "network of one address": (
        f"{CREATE}add A 10.0.0.1,tcp:80,10.0.0.2/32\n",
        f"{CREATE}add A 10.0.0.1,tcp:80,10.0.0.2\n",
    ),
    "network of one IPv6 address": (
        f"{CREATE}add A fd00::1,tcp:80,fd00::2/128\n",
        f"{CREATE}add A fd00::1,tcp:80,fd00::2\n",
    ),
    "order of entries": (
        f"{CREATE}add A 10.0.0.1,1\nadd A 10.0.0.2,1\n",
        f"{CREATE}add A 10.0.0.2,1\nadd A 10.0.0.1,1\n",
    ),
    "concatenated inputs": (
        f"{CREATE}add A 1\nadd A 2\n# comment\n{CREATE}del A 1\ndel A 3\nadd A 2\n",
        f"{CREATE}add A 2\n",
    ),
}
DIFFERENT = {
    "name": (CREATE, CREATE.replace("A", "B")),
    "type": (CREATE, CREATE.replace(",net", ",ip")),
    "family": (CREATE, CREATE.replace("inet", "inet6")),
    "size": (CREATE, CREATE.replace("65536", "65535")),
    "entry": (f"{CREATE}add A 10.0.0.1,tcp:80,10.0.0.0/8\n", f"{CREATE}add A 10.0.0.1,tcp:80,10.0.0.0/9\n"),
    "network of IPv6": (f"{CREATE}add A fd00::1,tcp:80,fd00::/32\n", f"{CREATE}add A fd00::1,tcp:80,fd00::\n"),
}
UNKNOWN = {
    "action": f"{CREATE}flush A 1",
    "option of a set": f"{CREATE.rstrip()} timeout 10",
    "option of an entry": f"{CREATE}add A 10.0.0.1 timeout 10",
    "option without a value": f"{CREATE.rstrip()} counters",
    "set": "add A 10.0.0.1",
    "set with another type": CREATE + CREATE.replace(",net", ",ip"),
    "network": f"{CREATE}add A 10.0.0.1,tcp:80,10.0.0.1/8",
}


@parametrize_cases(EQUAL)
def test_equal_inputs(case: tuple[str, str]) -> None:
    first, second = map(parse_ipsets, case)
    assert first == second


@parametrize_cases(DIFFERENT)
def test_different_inputs(case: tuple[str, str]) -> None:
    first, second = map(parse_ipsets, case)
    assert first != second


@parametrize_cases(UNKNOWN)
def test_unknown_syntax_is_an_error(case: str) -> None:
    with pytest.raises((ValueError, KeyError)):
        parse_ipsets(case)
