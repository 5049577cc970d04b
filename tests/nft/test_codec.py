"""Transactions as input for libnftables."""

import msgspec
import pytest

from knft.nft.codec.tables import creation_commands, transaction_commands
from knft.nft.expressions import Goto, Jump, Match, Meta, Rule
from knft.nft.objects import Chain, Container, Entry, Hook, Table
from knft.nft.transaction import Transaction

RULE = Rule((Match(Meta("l4proto"), "tcp"), Goto("pool-tcp-1")), "a comment")
CHAINS = (Chain("first"), Chain("second", (RULE,)))


def test_new_chains_are_sent_as_text() -> None:
    """All chains exist before the first rule, and a chain that existed has only the new rules."""
    assert transaction_commands(Transaction("ip6", "knft", new_chains=CHAINS)).splitlines() == [
        "add chain ip6 knft first",
        "add chain ip6 knft second",
        "flush chain ip6 knft first",
        "flush chain ip6 knft second",
        'add rule ip6 knft second meta l4proto tcp goto pool-tcp-1 comment "a comment"',
    ]


def test_transaction_with_chains_is_sent_as_text() -> None:
    """Verdicts need their chains, a value is replaced by deletion and addition, and nothing leads to deleted chains."""
    transaction = Transaction(
        "ip",
        "knft",
        chains=(Chain("pool-tcp-1"), Chain("old")),
        removed={"service-ips": (("10.96.0.1", "tcp", 80), ("10.96.0.2", "tcp", 80))},
        added={
            "service-ips": {("10.96.0.1", "tcp", 80): Entry(Goto("pool-tcp-1"), 'default/"web"')},
            "endpoints-tcp": {("10.96.0.1", 80, 0): ("10.244.0.1", 8080)},
        },
        deferred_removals={"source-ranges": (("203.0.113.1", "tcp", 80, "192.0.2.0/24"),)},
        deleted_chains=("old",),
    )
    assert transaction_commands(transaction).splitlines() == [
        "add chain ip knft pool-tcp-1",
        "add chain ip knft old",
        "flush chain ip knft pool-tcp-1",
        "flush chain ip knft old",
        "delete element ip knft service-ips {",
        "10.96.0.1 . tcp . 80,",
        "10.96.0.2 . tcp . 80",
        "}",
        "add element ip knft service-ips {",
        '10.96.0.1 . tcp . 80 comment "default/?web?" : goto pool-tcp-1',
        "}",
        "add element ip knft endpoints-tcp {",
        "10.96.0.1 . 80 . 0 : 10.244.0.1 . 8080",
        "}",
        "delete element ip knft source-ranges {",
        "203.0.113.1 . tcp . 80 . 192.0.2.0/24",
        "}",
        "delete chain ip knft old",
    ]


def test_table_is_created_in_one_transaction() -> None:
    """Elements of sets come after the declarations, and rules after the base chains."""
    declared = Table("ip", "knft", "", (Container("cluster-ips", "ipv4_addr"),), (), {})
    base = Chain("filter-input", (Rule((Jump("first"),)),), Hook("filter", "input", 0))
    first = Transaction("ip", "knft", chains=(Chain("first"), base), added={"cluster-ips": {("10.96.0.1",): None}})
    assert creation_commands(declared, first).splitlines() == [
        "table ip knft {",
        "",
        "\tset cluster-ips {",
        "\t\ttype ipv4_addr",
        "\t}",
        "}",
        "add chain ip knft first",
        "add chain ip knft filter-input { type filter hook input priority 0; policy accept; }",
        "flush chain ip knft first",
        "flush chain ip knft filter-input",
        "add rule ip knft filter-input jump first",
        "add element ip knft cluster-ips {",
        "10.96.0.1",
        "}",
    ]


def test_other_transactions_are_sent_as_json() -> None:
    sent = transaction_commands(Transaction("ip", "knft", deleted_chains=("old",)))
    commands = msgspec.json.decode(sent)["nftables"]
    assert commands[-1] == {"delete": {"chain": {"family": "ip", "table": "knft", "name": "old"}}}


@pytest.mark.parametrize("name", ["sticky-a;add table ip injected", "sticky-a b", "sticky-a\nflush ruleset"])
def test_names_of_other_programs_do_not_become_commands(name: str) -> None:
    """Chains that knft empties and deletes were found in its table."""
    for transaction in (
        Transaction("ip", "knft", chains=(Chain(name),)),
        Transaction("ip", "knft", chains=(Chain("pool-tcp-1"),), deleted_chains=(name,)),
    ):
        commands = msgspec.json.decode(transaction_commands(transaction))["nftables"]
        assert any(next(iter(command.values())).get("chain", {}).get("name") == name for command in commands)
