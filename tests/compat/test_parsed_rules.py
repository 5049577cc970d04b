"""Tests of the rule parser: equal rules are equal, different rules differ, unknown syntax is an error."""

import pytest

from knft.families import Family
from tests.support.kube_objects import parametrize_cases
from tests.support.parsed_rules import parse_rule, parse_tables, split_words

EQUAL = {
    "order of options": (
        '-m comment --comment "a b" -m tcp -p tcp -d 10.0.0.1 --dport 80 -j DROP',
        '-d 10.0.0.1/32 -p tcp -m comment --comment "a b" -m tcp --dport 80 -j DROP',
    ),
    "mark": ("-m mark ! --mark 0x00004000/0x00004000 -j RETURN", "-m mark ! --mark 0x4000/0x4000 -j RETURN"),
    "set the mark": ("-j MARK --or-mark 0x00004000", "-j MARK --set-xmark 0x4000/0x4000"),
    "clear the mark": ("-j MARK --xor-mark 0x00004000", "-j MARK --set-xmark 0x4000/0x0"),
    "probability": (
        "-m statistic --mode random --probability 0.3333333333 -j X",
        "-m statistic --mode random --probability 0.33333333349 -j X",
    ),
    "recent": (
        "-m recent --name X --rcheck --seconds 10800 --reap -j X",
        "-m recent --rcheck --seconds 10800 --reap --name X --mask 255.255.255.255 --rsource -j X",
    ),
    "apostrophe": (
        "-m comment --comment \"type 'hash ip:port'\" -j X",
        "-m comment --comment \"type \\'hash ip:port\\'\" -j X",
    ),
    "quotes": ("-m comment --comment a\\'b", '-m comment --comment "a\\\\\\\'b"'),
    "reject": ("-j REJECT", "-j REJECT --reject-with icmp-port-unreachable"),
    "network of all addresses": ("-s 0.0.0.0/0 -j X", "-j X"),
    "set": (
        "-m set --match-set X dst,dst ! -s 10.0.0.0/16 -j Y",
        "! -s 10.0.0.0/16 -m set --match-set X dst,dst -j Y",
    ),
    "bridge": (
        "-m set --match-set X dst -m physdev ! --physdev-is-in -p tcp -j Y",
        "-p tcp -m set --match-set X dst -m physdev ! --physdev-is-in -j Y",
    ),
    "states": ("-m conntrack --ctstate RELATED,ESTABLISHED", "-m conntrack --ctstate ESTABLISHED,RELATED"),
}
DIFFERENT = {
    "negation": ("-m mark ! --mark 0x1/0x1 -j X", "-m mark --mark 0x1/0x1 -j X"),
    "negated network": ("-s 10.0.0.0/8 -j X", "! -s 10.0.0.0/8 -j X"),
    "negated network of all addresses": ("! -s 0.0.0.0/0 -j X", "-j X"),
    "port": ("-p tcp -m tcp --dport 80", "-p tcp -m tcp --dport 81"),
    "order of matches": (
        "-m recent --name X --set -m addrtype --src-type LOCAL",
        "-m addrtype --src-type LOCAL -m recent --name X --set",
    ),
    "target": ("-j X", "-j Y"),
    "no target": ("-m comment --comment x", "-m comment --comment x -j RETURN"),
    "apostrophe": ('-m comment --comment "x\'y"', "-m comment --comment xy"),
    "random ports": ("-j MASQUERADE", "-j MASQUERADE --random-fully"),
    "probability": (
        "-m statistic --mode random --probability 0.3333333333 -j X",
        "-m statistic --mode random --probability 0.3333333 -j X",
    ),
    "set": ("-m set --match-set X dst -j Z", "-m set --match-set Y dst -j Z"),
    "directions of a set": ("-m set --match-set X dst,dst -j Z", "-m set --match-set X src,dst -j Z"),
    "negated set": ("-m set --match-set X dst -j Z", "-m set ! --match-set X dst -j Z"),
    "bridge": ("-m physdev --physdev-is-in -j X", "-m physdev ! --physdev-is-in -j X"),
    "reject type": ("-j REJECT", "-j REJECT --reject-with icmp6-port-unreachable"),
}
UNKNOWN = {
    "option of a match": "-m tcp -p tcp --sport 80 -j X",
    "match": "-m limit --limit 3/min -j X",
    "option of the header": "-o eth0 -j X",
    "option of a target": "-j DNAT --to-destination 10.0.0.1:80 --persistent",
    "option of set": "-m set --match-set X dst --return-nomatch -j Y",
    "option of physdev": "-m physdev --physdev-is-out -j X",
    "IPVS": "-m ipvs --vaddr 10.0.0.1 -j X",
    "goto": "-g X",
    "two targets": "-j X -j Y",
    "option of another match": "-m tcp -p tcp -m addrtype --dport 80",
    "word": "DROP",
}


@parametrize_cases(EQUAL)
def test_inputs_of_equal_rules_parse_equal(case: tuple[str, str]) -> None:
    first, second = (parse_rule(split_words(text), Family.IPV4) for text in case)
    assert first == second


@parametrize_cases(DIFFERENT)
def test_inputs_of_different_rules_parse_different(case: tuple[str, str]) -> None:
    first, second = (parse_rule(split_words(text), Family.IPV4) for text in case)
    assert first != second


@parametrize_cases(UNKNOWN)
def test_unknown_syntax_is_an_error(case: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_rule(split_words(case), Family.IPV4)


@parametrize_cases(
    {
        "unclosed quote": '-j "X',
        "quote within a word": 'a"b" -j X',
        "no space after a quote": '"a"b',
        "escaped quote": '"a\\"',
    }
)
def test_invalid_quotes_are_an_error(case: str) -> None:
    with pytest.raises(ValueError, match="invalid quotes"):
        split_words(case)


def test_chain_line_flushes_the_chain() -> None:
    text = "*nat\n:A - [0:0]\n-A A -j RETURN\n:B - [0:0]\n:A - [0:0]\n-X A\nCOMMIT\n"
    assert parse_tables(text, Family.IPV4) == {"nat": {"B": ()}}


def test_concatenated_inputs_accumulate() -> None:
    first = "*nat\n:A - [0:0]\n:B - [0:0]\n:C - [0:0]\n-A A -j B\n-A B -j RETURN\nCOMMIT\n"
    second = "*filter\n:D - [0:0]\nCOMMIT\n*nat\n:A - [0:0]\n-A B -j C\n-A A -j C\nCOMMIT\n"
    in_nat = "*nat\n:C - [0:0]\n:B - [0:0]\n:A - [0:0]\n-A A -j C\n-A B -j RETURN\n-A B -j C\nCOMMIT\n"
    in_filter = "*filter\n:D - [0:0]\nCOMMIT\n"
    assert parse_tables(first + second, Family.IPV4) == parse_tables(in_filter + in_nat, Family.IPV4)


@parametrize_cases(
    {"rule": "-A B -j A", "insertion": "-I A -j RETURN", "chain with rules": "-A A -j RETURN\n-X A", "junk": "x"}
)
def test_invalid_lines_are_an_error(case: str) -> None:
    with pytest.raises((ValueError, KeyError)):
        parse_tables(f"*nat\n:A - [0:0]\n{case}\nCOMMIT\n", Family.IPV4)
