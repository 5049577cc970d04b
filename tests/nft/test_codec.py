"""Transactions as input for libnftables."""

import msgspec

from knft.nft.codec.tables import transaction_commands
from knft.nft.expressions import Goto, Match, Meta, Rule
from knft.nft.objects import Chain
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


def test_other_transactions_are_sent_as_json() -> None:
    sent = transaction_commands(Transaction("ip", "knft", new_chains=CHAINS, deleted_chains=("old",)))
    commands = msgspec.json.decode(sent)["nftables"]
    assert commands[-1] == {"delete": {"chain": {"family": "ip", "table": "knft", "name": "old"}}}
