"""Ways in which kube-proxy's rules, sets and servers in mode ipvs go wrong, as the tools would print them."""

import re
from collections.abc import Callable
from random import Random

from tests.interpret.mutation.node import Node
from tests.interpret.mutation.operator import Operator, Touched

Change = Callable[[Node, Random], Touched | None]


def _target(edit: Callable[[str], str], least: int = 1) -> Change:
    """Change a real server, or take it away where ``edit`` returns nothing."""

    def change(node: Node, chance: Random) -> Touched | None:
        line = chance.choice(node.targets(least))
        at = node.servers.index(line)
        node.servers[at : at + 1] = [made for made in (edit(line),) if made]
        return Touched(node.service(line))

    return change


def _next_port(line: str) -> str:
    return re.sub(r"(-r \S+:)(\d+)", lambda found: f"{found[1]}{int(found[2]) + 1}", line)


def _server(edit: Callable[[str], str], has: str = "") -> Change:
    """Change a virtual server."""

    def change(node: Node, chance: Random) -> Touched | None:
        lines = [line for line in node.virtual() if has in line]
        if not lines:
            return None
        line = chance.choice(lines)
        node.servers[node.servers.index(line)] = edit(line)
        return Touched(node.service(line))

    return change


def _server_missing(node: Node, chance: Random) -> Touched | None:
    line = chance.choice(node.virtual())
    for other in (line, *node.of(line)):
        node.servers.remove(other)
    return Touched(node.service(line))


def _target_added(node: Node, chance: Random) -> Touched | None:
    line = chance.choice(node.targets())
    more = re.sub(r"-r (\[?)[^.\]:]+", lambda found: f"-r {found[1]}{'fd01' if found[1] else '11'}", line)
    node.servers.insert(node.servers.index(line), more)
    return Touched(node.service(line))


def _target_of_other(node: Node, chance: Random) -> Touched | None:
    line = chance.choice(node.targets())
    mine = node.service(line)
    others = [
        other for other in node.targets() if node.service(other)[0].partition(":")[0] != mine[0].partition(":")[0]
    ]
    end = chance.choice(others).split(" -r ")[1]
    node.servers[node.servers.index(line)] = f"{line.split(' -r ')[0]} -r {end}"
    return Touched(mine)


def _element_missing(name: str) -> Change:
    def change(node: Node, chance: Random) -> Touched | None:
        lines = node.elements(name)
        if not lines:
            return None
        line = chance.choice(lines)
        touched = Touched(node.owners(line) if name == "KUBE-LOOP-BACK" else node.service(line))
        node.sets.remove(line)
        return touched

    return change


def _frontend_missing(name: str) -> Change:
    """Take a frontend out of the set of those that are let through, and masqueraded."""

    def change(node: Node, chance: Random) -> Touched | None:
        lines = node.elements(name)
        if not lines:
            return None
        line = chance.choice(lines)
        node.sets.remove(line)
        if any(node.service(line) == node.service(other) for other in node.targets()):
            return Touched(node.service(line))
        return Touched(node.service(line), "without endpoints it is refused, by IPVS or by the rule for other ports")

    return change


def _node_port_missing(node: Node, chance: Random) -> Touched | None:
    lines = node.elements("KUBE-NODE-PORT-TCP")
    if not lines:
        return None
    line = chance.choice(lines)
    node.sets.remove(line)
    port = line.split()[2]
    if any(other.split()[2] == port for other in node.elements("KUBE-NODE-PORT-LOCAL-TCP")):
        return Touched(node.service(line), "of policy Local: a rule for these returns before the set is looked at")
    if not any(node.service(line) == node.service(other) for other in node.targets()):
        return Touched(node.service(line), "without endpoints it is refused by IPVS, masqueraded or not")
    return Touched(node.service(line))


def _not_bound_in_set(node: Node, chance: Random) -> Touched | None:
    """Forget an address of all those whose other ports are refused."""
    line = chance.choice(node.elements("KUBE-IPVS-IPS"))
    node.sets.remove(line)
    if line.split()[2].startswith(("10.96.", "fd00:10:96:")):
        return Touched(node.service(line))
    return Touched(node.service(line), "knft refuses other ports of cluster IPs alone: this is nearer to it")


def _element_edited(name: str, pattern: str, new: Callable[[re.Match[str]], str]) -> Change:
    def change(node: Node, chance: Random) -> Touched | None:
        lines = node.elements(name)
        if not lines:
            return None
        line = chance.choice(lines)
        made = re.sub(pattern, new, line)
        assert made != line
        node.sets[node.sets.index(line)] = made
        return Touched(node.service(line))

    return change


def _rule_missing(table: str, chain: str, has: str) -> Change:
    def change(node: Node, _: Random) -> Touched | None:
        node.rules.remove(node.rules.find(table, chain, has)[0])
        return Touched()

    return change


def _rule_edited(table: str, chain: str, old: str, new: str) -> Change:
    def change(node: Node, _: Random) -> Touched | None:
        place = node.rules.find(table, chain, old)[0]
        node.rules.replace(place, re.sub(old, new, place.text, count=1))
        return Touched()

    return change


def _guard_missing(node: Node, _: Random) -> Touched | None:
    """Let everybody in to whom source ranges are set."""
    guarded = node.elements("KUBE-LOAD-BALANCER-FW")
    if not guarded:
        return None
    node.rules.remove(node.rules.find("filter", "KUBE-SOURCE-RANGES-FIREWALL", "-j DROP")[0])
    return Touched(tuple(name for line in guarded for name in node.service(line)))


def _uninterpreted(node: Node, chance: Random) -> Touched | None:
    lines = node.virtual()
    line = chance.choice(lines)
    address = line.split()[2].rpartition(":")[0].strip("[]")
    first = node.rules.find("nat", "KUBE-SERVICES")[0]
    text = f"-A KUBE-SERVICES -d {address} -m bpf --bytecode 4,48_0_0_9,21_0_1_6,6_0_0_1,6_0_0_0 -j ACCEPT"
    node.rules.insert(first, text)
    service = node.service(line)[0]
    return Touched((service, service.partition(":")[0]), line=node.rules.line_of(text))


def _wider(found: re.Match[str]) -> str:
    return f"/{int(found[1]) + 1}"


OPERATORS: tuple[Operator[Node], ...] = (
    Operator("real server missing", "one of several", _target(lambda _: "", 2)),
    Operator("real server added", "nobody's", _target_added),
    Operator("real server of another", "Service", _target_of_other),
    Operator("wrong real port", "by one", _target(_next_port)),
    Operator("wrong weight", "twice the others'", _target(lambda line: line.replace("-w 1", "-w 2"), 2)),
    Operator("weight of nought", "gets nothing", _target(lambda line: line.replace("-w 1", "-w 0"))),
    Operator("virtual server missing", "whole", _server_missing),
    Operator("other persistence", "by a second", _server(lambda line: f"{line}1", " -p ")),
    Operator("persistence lost", "nobody is remembered", _server(lambda line: line.partition(" -p ")[0], " -p ")),
    Operator("persistence added", "everybody is", _server(lambda line: f"{line.partition(' -p ')[0]} -p 77")),
    Operator("cluster IP not in its set", "no masquerade", _frontend_missing("KUBE-CLUSTER-IP")),
    Operator("load balancer not in its set", "no masquerade", _frontend_missing("KUBE-LOAD-BALANCER")),
    Operator("local load balancer not in its set", "a masquerade", _element_missing("KUBE-LOAD-BALANCER-LOCAL")),
    Operator("external IP not in its set", "no masquerade", _frontend_missing("KUBE-EXTERNAL-IP")),
    Operator("NodePort not in its set", "no masquerade", _node_port_missing),
    Operator("local NodePort not in its set", "a masquerade", _element_missing("KUBE-NODE-PORT-LOCAL-TCP")),
    Operator("hairpin missing", "of an endpoint on the node", _element_missing("KUBE-LOOP-BACK")),
    Operator("address not in the set of all", "what it does not serve is not refused", _not_bound_in_set),
    Operator("firewall hole", "not in the set of guarded ones", _element_missing("KUBE-LOAD-BALANCER-FW")),
    Operator("source range missing", "one of two", _element_missing("KUBE-LOAD-BALANCER-SOURCE-CIDR")),
    Operator("source range narrower", "half", _element_edited("KUBE-LOAD-BALANCER-SOURCE-CIDR", r"/(\d+)$", _wider)),
    Operator("firewall open", "no drop", _guard_missing),
    Operator("match of nobody knows what", "in front of all", _uninterpreted),
    Operator("no services from outside", "jump", _rule_missing("nat", "PREROUTING", "KUBE-SERVICES")),
    Operator("no services from the node", "jump", _rule_missing("nat", "OUTPUT", "KUBE-SERVICES")),
    Operator("no postrouting", "jump", _rule_missing("nat", "POSTROUTING", "KUBE-POSTROUTING")),
    Operator("no masquerade", "rule", _rule_missing("nat", "KUBE-POSTROUTING", "random-fully")),
    Operator("no hairpins", "rule", _rule_missing("nat", "KUBE-POSTROUTING", "KUBE-.*LOOP-BACK")),
    Operator("wrong mark", "set", _rule_edited("nat", "KUBE-MARK-MASQ", "0x00004000", "0x00008000")),
    Operator("no access filter", "jump", _rule_missing("filter", "INPUT", "KUBE-IPVS-FILTER")),
)
