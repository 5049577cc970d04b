"""Which elements and chains a transaction changes, and which differences the listing of rules explains."""

from knft.nft.objects import Chain
from knft.nft.transaction import Transaction
from knft.sync.audit import chains_with_other_listing_format, changed_positions


def test_each_part_of_a_transaction_changes_positions() -> None:
    transaction = Transaction(
        "ip",
        "knft",
        chains=(Chain("changed"),),
        new_chains=(Chain("new"),),
        removed={"a": ((1,),), "b": ((2,), (3,))},
        added={"a": {(1,): None, (4,): None}, "c": {(5,): None}},
        deferred_removals={"d": ((6,),)},
        deleted_chains=("deleted",),
    )
    elements = {("a", (1,)), ("b", (2,)), ("b", (3,)), ("a", (4,)), ("c", (5,)), ("d", (6,))}
    assert changed_positions(transaction) == {*elements, ("changed", ()), ("new", ()), ("deleted", ())}


def test_rules_that_are_listed_as_before_knft_wrote_them_are_right() -> None:
    listed = {"same": "1", "other": "2", "new": "3", "missing": ""}
    assert chains_with_other_listing_format(listed, {"same": "1", "other": "9", "missing": ""}) == {("same", ())}
