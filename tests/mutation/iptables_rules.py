"""Finds and changes rules of kube-proxy in mode iptables."""

import re
from collections.abc import Callable, Sequence
from random import Random

from tests.mutation.iptables_save import IptablesSave, RuleLine
from tests.mutation.operator import Expectation

Change = Callable[[IptablesSave, Random], Expectation | None]
Find = Callable[[IptablesSave], Sequence[RuleLine]]

LOCAL_POD = re.compile(r"\b(10\.244\.1\.|fd00:10:244:1::)")
POOLS = "KUBE-SV*"


def find(table: str, chain: str, has: str = "", lacks: str = "\0") -> Find:
    return lambda saved: saved.find(table, chain, has, lacks)


CLUSTER_IPS = find("nat", "KUBE-SERVICES", "cluster IP")
FRONTENDS = find("nat", "KUBE-SERVICES", r"--dport")
EXTERNAL = find("nat", "KUBE-SERVICES", "loadbalancer IP|external IP")
NODE_PORTS = find("nat", "KUBE-NODEPORTS", lacks="nfacct")
RANDOM = find("nat", POOLS, "--probability")
DNAT = find("nat", "KUBE-SEP-*", "-j DNAT")
CHECKS = find("nat", POOLS, "--rcheck")
SETS = find("nat", "KUBE-SEP-*", "--set ")
RANGES = find("nat", "KUBE-FW-*", r" -s ")
REJECT_RULES = find("filter", "*", "-j REJECT")
DROP_RULES = find("filter", "*", "no local endpoints")
FIREWALL = find("filter", "KUBE-PROXY-FIREWALL", "-j DROP")


def remove_rule(find: Find, *, of_all: bool = False) -> Change:
    """Return an operator that removes a rule; with ``of_all`` the rule belongs to all Services."""

    def change(saved: IptablesSave, random: Random) -> Expectation | None:
        place = choose(find(saved), random)
        if place is None:
            return None
        expectation = Expectation() if of_all else Expectation((saved.service_of_rule(place),))
        saved.remove(place)
        return expectation

    return change


def edit_rule(find: Find, pattern: str, new: str | Callable[[re.Match[str]], str], *, of_all: bool = False) -> Change:
    """Return an operator that edits the text of a rule."""

    def change(saved: IptablesSave, random: Random) -> Expectation | None:
        place = choose(find(saved), random)
        if place is None:
            return None
        expectation = Expectation() if of_all else Expectation((saved.service_of_rule(place),))
        saved.replace(place, re.sub(pattern, new, place.text, count=1))
        return expectation

    return change


def choose(found: Sequence[RuleLine], random: Random) -> RuleLine | None:
    return random.choice(found) if found else None


def increased_by(add: int) -> Callable[[re.Match[str]], str]:
    return lambda found: f"{found[1]}{int(found[2]) + add}"


def pool_chains(saved: IptablesSave) -> list[str]:
    return [*saved.chains("nat", "KUBE-SVC-"), *saved.chains("nat", "KUBE-SVL-")]
