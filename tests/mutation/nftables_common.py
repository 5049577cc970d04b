"""Helpers of the operators for mode nftables."""

from collections.abc import Callable
from random import Random
from typing import Any

from tests.mutation.nft_listing import NftListing, Object, service_of_chain
from tests.mutation.operator import Expectation

Change = Callable[[NftListing, Random], Expectation | None]
FRONTENDS, NODE_PORTS = "service-ips", "service-nodeports"


def random_choice(rule: Object) -> tuple[Object, list[Any]]:
    """Return the random number of a rule, and the map or set that it is looked up in."""
    for item in rule["rule"]["expr"]:
        found = item.get("vmap") or item.get("dnat", {}).get("addr", {}).get("map")
        if found:
            return found["key"]["numgen"], found["data"]["set"]
    raise AssertionError(rule)


def remove_rule(chain: str, has: str = "") -> Change:
    """Return an operator that removes a rule from a chain of a Service."""

    def change(listed: NftListing, random: Random) -> Expectation | None:
        rules = listed.rules(chain, has)
        if not rules:
            return None
        rule = random.choice(rules)
        listed.remove(rule)
        return Expectation((service_of_chain(rule["rule"]["chain"]),))

    return change
