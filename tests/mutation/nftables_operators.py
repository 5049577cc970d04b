"""Faults of rules and base chains for all Services in mode nftables; the list of all operators."""

import json
import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from tests.mutation.nft_listing import NftListing
from tests.mutation.nftables_common import Change
from tests.mutation.nftables_frontends import FRONTEND_OPERATORS
from tests.mutation.nftables_pools import POOL_OPERATORS
from tests.mutation.operator import Expectation, Operator


def _remove_rule_of_all(chain: str, has: str = "") -> Change:
    """Return an operator that removes a rule for all Services."""

    def change(listed: NftListing, random: Random) -> Expectation | None:
        rules = listed.rules(chain, has)
        if not rules:
            return None
        listed.remove(random.choice(rules))
        return Expectation()

    return change


def _edit_node_port_addresses(edit: Callable[[list[Any], str], None]) -> Change:
    def change(listed: NftListing, _: Random) -> Expectation | None:
        edit(listed.elements("nodeport-ips"), "203.0.113.99" if listed.family == "ip" else "2001:db8:cb::9:9")
        return Expectation()

    return change


def _clear(elements: list[Any], _: str) -> None:
    elements.clear()


def _append_address(elements: list[Any], other: str) -> None:
    elements.append(other)


def _edit_base_chain(name: str, field: str, value: Any) -> Change:
    """Return an operator that edits a base chain."""

    def change(listed: NftListing, _: Random) -> Expectation | None:
        listed.base(name)[field] = value
        return Expectation()

    return change


def _edit_rule_of_all(chain: str, old: str, new: str) -> Change:
    """Return an operator that edits the JSON of a rule for all Services."""

    def change(listed: NftListing, _: Random) -> Expectation | None:
        rules = listed.rules(chain, re.escape(old))
        if not rules:
            return None
        rules[0]["rule"] = json.loads(json.dumps(rules[0]["rule"]).replace(old, new))
        return Expectation()

    return change


def _return_first(listed: NftListing, _: Random) -> Expectation | None:
    listed.insert(listed.rules("services")[0], {"return": None})
    return Expectation()


GLOBAL_OPERATORS: tuple[Operator[NftListing], ...] = (
    Operator("no NodePort addresses", "at all", _edit_node_port_addresses(_clear)),
    Operator("additional NodePort address", "that the node does not have", _edit_node_port_addresses(_append_address)),
    Operator("no services from outside", "jump", _remove_rule_of_all("nat-prerouting")),
    Operator("no services from the node", "jump", _remove_rule_of_all("nat-output")),
    Operator("no masquerading", "jump", _remove_rule_of_all("nat-postrouting")),
    Operator("no frontends", "look-up", _remove_rule_of_all("services", "@service-ips")),
    Operator("no cluster IPs' check", "reject", _remove_rule_of_all("cluster-ips-check", "invalid ports")),
    Operator("return first", "of services", _return_first),
    Operator("wrong mark", "looked for", _edit_rule_of_all("masquerading", '16384]}, "right"', '32768]}, "right"')),
    Operator("input drops", "by policy", _edit_base_chain("filter-input", "policy", "drop")),
    Operator("forwarding drops", "by policy", _edit_base_chain("filter-forward", "policy", "drop")),
    Operator(
        "firewall after translation", "another priority", _edit_base_chain("filter-prerouting-pre-dnat", "prio", -90)
    ),
)
OPERATORS: Sequence[Operator[NftListing]] = (*POOL_OPERATORS, *FRONTEND_OPERATORS, *GLOBAL_OPERATORS)
