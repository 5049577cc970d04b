"""Counters of a chain's rules, as knft reads them and as nft loads them."""

import errno

import pytest

from knft.errors import KernelError
from knft.families import Family
from knft.kernel import rule_counter
from knft.kernel.rule_counter import counted_packets
from tests.support.lab.namespace import Namespace

pytestmark = pytest.mark.kernel

LARGE = (1 << 40) + 5
RULES = f"""
table {{family}} knft {{{{
    chain counting {{{{
        ct state new accept
        ct state invalid counter packets {LARGE} bytes 7 drop comment "counted"
        counter packets 2 bytes 3
    }}}}
    chain plain {{{{ ct state new accept; }}}}
    chain empty {{{{ }}}}
}}}}
table {{family}} other {{{{
    chain counting {{{{ counter packets 100 bytes 100; }}}}
}}}}
"""


@pytest.mark.parametrize("family", Family)
def test_counters_of_one_chain_are_added(namespace: Namespace, family: Family) -> None:
    namespace.run(["nft", "-f", "-"], stdin=RULES.format(family=family.nft))
    found = [counted_packets(family.number, "knft", chain) for chain in ("counting", "plain", "empty", "missing")]
    assert found == [LARGE + 2, None, None, None]
    (other,) = (each for each in Family if each is not family)
    assert counted_packets(other.number, "knft", "counting") is None
    assert counted_packets(family.number, "missing", "counting") is None


def test_refusal_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> list[bytes]:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(rule_counter, "dump", refuse)
    with pytest.raises(KernelError, match="cannot read the counters of chain counting: Operation not permitted"):
        counted_packets(2, "knft", "counting")
