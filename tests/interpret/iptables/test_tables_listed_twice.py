"""What iptables-nft keeps is in nft's listing too, and is read once."""

from typing import Any

import pytest

from knft.comparison.captures import Capture, read_capture
from knft.interpret.compare.foreign import is_owned_chain
from tests.interpret.nftables.listings import document

SAVED = "*nat\n:PREROUTING ACCEPT [0:0]\n:KUBE-SERVICES - [0:0]\nCOMMIT\n"


def _table(family: str, table: str, base: str) -> list[dict[str, Any]]:
    of = {"family": family, "table": table}
    hooked = {**of, "name": base, "type": "nat", "hook": "prerouting", "prio": -100, "policy": "accept"}
    return [
        {"table": {"family": family, "name": table}},
        {"chain": hooked},
        {"chain": {**of, "name": "KUBE-SERVICES"}},
    ]


@pytest.mark.parametrize(
    ("family", "table", "base", "is_twice"),
    [
        ("ip", "nat", "PREROUTING", True),
        ("ip", "nat", "mine", False),  # somebody's own, beside iptables-legacy
        ("ip", "filter", "INPUT", False),  # not in what was saved
        ("inet", "nat", "PREROUTING", False),
    ],
)
def test_a_table_of_iptables_is_read_once(family: str, table: str, base: str, is_twice: bool) -> None:  # noqa: FBT001
    listing = document(*_table(family, table, base), *_table("ip", "other", "PREROUTING")).encode()
    rules = read_capture(Capture({4: SAVED}, nftables=listing))[4]
    assert {"nat KUBE-SERVICES", "ip other KUBE-SERVICES"} < set(rules.chains)
    assert (f"{family} {table} KUBE-SERVICES" in rules.chains) is not is_twice
    assert (f"{family} {table} {base}" in {entry.chain for entry in rules.base_chains}) is not is_twice
    alone = read_capture(Capture(nftables=listing))[4]
    assert f"{family} {table} KUBE-SERVICES" in alone.chains


def test_the_other_familys_save_says_nothing_of_this_one() -> None:
    listing = document(*_table("ip", "nat", "PREROUTING")).encode()
    assert "ip nat KUBE-SERVICES" in read_capture(Capture({6: SAVED}, nftables=listing))[4].chains


@pytest.mark.parametrize("name", ["nat KUBE-SERVICES", "ip nat KUBE-SERVICES", "ip6 filter KUBE-FORWARD"])
def test_kube_proxys_chains_are_known_by_either_name(name: str) -> None:
    assert is_owned_chain(name)


@pytest.mark.parametrize("name", ["inet nat KUBE-SERVICES", "ip nat PREROUTING", "ip mine KUBE-SERVICES"])
def test_others_are_not(name: str) -> None:
    assert not is_owned_chain(name)
