"""Tables of iptables-nft appear in the nft listing too, but are parsed only once."""

from typing import Any

import pytest

from knft.comparison.captures import Capture, read_capture
from knft.interpret.owned_chains import is_owned_chain
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
    ("family", "table", "base", "is_duplicate"),
    [
        ("ip", "nat", "PREROUTING", True),
        ("ip", "nat", "mine", False),  # another program's table "nat", on a host with iptables-legacy
        ("ip", "filter", "INPUT", False),  # table missing in the output of iptables-save
        ("inet", "nat", "PREROUTING", False),
    ],
)
def test_iptables_table_is_parsed_once(family: str, table: str, base: str, is_duplicate: bool) -> None:  # noqa: FBT001
    listing = document(*_table(family, table, base), *_table("ip", "other", "PREROUTING")).encode()
    rules = read_capture(Capture({4: SAVED}, nftables=listing))[4]
    assert {"nat KUBE-SERVICES", "ip other KUBE-SERVICES"} < set(rules.chains)
    assert (f"{family} {table} KUBE-SERVICES" in rules.chains) is not is_duplicate
    assert (f"{family} {table} {base}" in {entry.chain for entry in rules.base_chains}) is not is_duplicate
    alone = read_capture(Capture(nftables=listing))[4]
    assert f"{family} {table} KUBE-SERVICES" in alone.chains


def test_capture_of_the_other_family_does_not_hide_a_table() -> None:
    listing = document(*_table("ip", "nat", "PREROUTING")).encode()
    assert "ip nat KUBE-SERVICES" in read_capture(Capture({6: SAVED}, nftables=listing))[4].chains


@pytest.mark.parametrize("name", ["nat KUBE-SERVICES", "ip nat KUBE-SERVICES", "ip6 filter KUBE-FORWARD"])
def test_kube_proxy_chains_are_recognised_by_both_names(name: str) -> None:
    assert is_owned_chain(name)


@pytest.mark.parametrize("name", ["inet nat KUBE-SERVICES", "ip nat PREROUTING", "ip mine KUBE-SERVICES"])
def test_foreign_chains_are_not_recognised_as_kube_proxy(name: str) -> None:
    assert not is_owned_chain(name)
