"""Ways in which kube-proxy's table in mode nftables goes wrong, as nft would list it: those of all Services here."""

import json
import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from tests.interpret.mutation.listed import Listed
from tests.interpret.mutation.nftables_frontends import OF_FRONTENDS
from tests.interpret.mutation.nftables_parts import Change
from tests.interpret.mutation.nftables_pools import OF_POOLS
from tests.interpret.mutation.operator import Operator, Touched


def _removed_of_all(chain: str, has: str = "") -> Change:
    """Take away a rule that is there for all Services."""

    def change(listed: Listed, chance: Random) -> Touched | None:
        rules = listed.rules(chain, has)
        if not rules:
            return None
        listed.remove(chance.choice(rules))
        return Touched()

    return change


def _node_port_ip(edit: Callable[[list[Any], str], None]) -> Change:
    def change(listed: Listed, _: Random) -> Touched | None:
        edit(listed.elements("nodeport-ips"), "203.0.113.99" if listed.family == "ip" else "2001:db8:cb::9:9")
        return Touched()

    return change


def _clear(elements: list[Any], _: str) -> None:
    elements.clear()


def _with_other(elements: list[Any], other: str) -> None:
    elements.append(other)


def _base(name: str, field: str, value: Any) -> Change:
    """Change a base chain."""

    def change(listed: Listed, _: Random) -> Touched | None:
        listed.base(name)[field] = value
        return Touched()

    return change


def _replaced(chain: str, old: str, new: str) -> Change:
    """Change a rule that is there for all Services, in its text."""

    def change(listed: Listed, _: Random) -> Touched | None:
        rules = listed.rules(chain, re.escape(old))
        if not rules:
            return None
        rules[0]["rule"] = json.loads(json.dumps(rules[0]["rule"]).replace(old, new))
        return Touched()

    return change


def _return_first(listed: Listed, _: Random) -> Touched | None:
    listed.insert(listed.rules("services")[0], {"return": None})
    return Touched()


OF_ALL: tuple[Operator[Listed], ...] = (
    Operator("no NodePort addresses", "at all", _node_port_ip(_clear)),
    Operator("one NodePort address more", "of nobody", _node_port_ip(_with_other)),
    Operator("no services from outside", "jump", _removed_of_all("nat-prerouting")),
    Operator("no services from the node", "jump", _removed_of_all("nat-output")),
    Operator("no masquerading", "jump", _removed_of_all("nat-postrouting")),
    Operator("no frontends", "look-up", _removed_of_all("services", "@service-ips")),
    Operator("no cluster IPs' check", "reject", _removed_of_all("cluster-ips-check", "invalid ports")),
    Operator("return first", "of services", _return_first),
    Operator("wrong mark", "looked for", _replaced("masquerading", '16384]}, "right"', '32768]}, "right"')),
    Operator("input drops", "by policy", _base("filter-input", "policy", "drop")),
    Operator("forwarding drops", "by policy", _base("filter-forward", "policy", "drop")),
    Operator("firewall after translation", "another priority", _base("filter-prerouting-pre-dnat", "prio", -90)),
)
OPERATORS: Sequence[Operator[Listed]] = (*OF_POOLS, *OF_FRONTENDS, *OF_ALL)
