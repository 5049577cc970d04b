"""What several ways have in common in which kube-proxy's table in mode nftables goes wrong."""

from collections.abc import Callable
from random import Random
from typing import Any

from tests.interpret.mutation.listed import Listed, Object, owner
from tests.interpret.mutation.operator import Touched

Change = Callable[[Listed, Random], Touched | None]
FRONTENDS, NODE_PORTS = "service-ips", "service-nodeports"


def drawn_of(rule: Object) -> tuple[Object, list[Any]]:
    """Return what is drawn in a rule, and what for."""
    for item in rule["rule"]["expr"]:
        found = item.get("vmap") or item.get("dnat", {}).get("addr", {}).get("map")
        if found:
            return found["key"]["numgen"], found["data"]["set"]
    raise AssertionError(rule)


def removed(chain: str, has: str = "") -> Change:
    """Take away a rule of a Service's chain."""

    def change(listed: Listed, chance: Random) -> Touched | None:
        rules = listed.rules(chain, has)
        if not rules:
            return None
        rule = chance.choice(rules)
        listed.remove(rule)
        return Touched((owner(rule["rule"]["chain"]),))

    return change
