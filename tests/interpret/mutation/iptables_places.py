"""Where things stand in what kube-proxy writes in mode iptables, and the plainest ways to change them."""

import re
from collections.abc import Callable, Sequence
from random import Random

from tests.interpret.mutation.operator import Touched
from tests.interpret.mutation.saved import Place, Saved

Change = Callable[[Saved, Random], Touched | None]
Find = Callable[[Saved], Sequence[Place]]

HERE = re.compile(r"\b(10\.244\.1\.|fd00:10:244:1::)")
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
REFUSALS = find("filter", "*", "-j REJECT")
FORBIDDEN = find("filter", "*", "no local endpoints")
FIREWALL = find("filter", "KUBE-PROXY-FIREWALL", "-j DROP")


def removed(find: Find, *, of_all: bool = False) -> Change:
    """Take away a rule; ``of_all`` where it is no single Service's."""

    def change(saved: Saved, chance: Random) -> Touched | None:
        place = one_of(find(saved), chance)
        if place is None:
            return None
        touched = Touched() if of_all else Touched((saved.service(place),))
        saved.remove(place)
        return touched

    return change


def edited(find: Find, pattern: str, new: str | Callable[[re.Match[str]], str], *, of_all: bool = False) -> Change:
    """Write a part of a rule otherwise."""

    def change(saved: Saved, chance: Random) -> Touched | None:
        place = one_of(find(saved), chance)
        if place is None:
            return None
        touched = Touched() if of_all else Touched((saved.service(place),))
        saved.replace(place, re.sub(pattern, new, place.text, count=1))
        return touched

    return change


def one_of(found: Sequence[Place], chance: Random) -> Place | None:
    return chance.choice(found) if found else None


def more(add: int) -> Callable[[re.Match[str]], str]:
    return lambda found: f"{found[1]}{int(found[2]) + add}"


def pools(saved: Saved) -> list[str]:
    return [*saved.chains("nat", "KUBE-SVC-"), *saved.chains("nat", "KUBE-SVL-")]
