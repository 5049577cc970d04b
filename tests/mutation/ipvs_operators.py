"""Faults of kube-proxy's rules, ipsets and virtual servers in mode ipvs."""

import re
from collections.abc import Callable
from random import Random

from tests.mutation.ipvs_captures import IpvsCaptures
from tests.mutation.operator import Expectation, Operator

Change = Callable[[IpvsCaptures, Random], Expectation | None]


def _target(edit: Callable[[str], str], least: int = 1) -> Change:
    """Edit a real server; remove it if ``edit`` returns nothing."""

    def change(node: IpvsCaptures, random: Random) -> Expectation | None:
        line = random.choice(node.real_servers(least))
        at = node.servers.index(line)
        node.servers[at : at + 1] = [new for new in (edit(line),) if new]
        return Expectation(node.services_of_line(line))

    return change


def _next_port(line: str) -> str:
    return re.sub(r"(-r \S+:)(\d+)", lambda found: f"{found[1]}{int(found[2]) + 1}", line)


def _server(edit: Callable[[str], str], has: str = "") -> Change:
    """Edit a virtual server."""

    def change(node: IpvsCaptures, random: Random) -> Expectation | None:
        lines = [line for line in node.virtual_servers() if has in line]
        if not lines:
            return None
        line = random.choice(lines)
        node.servers[node.servers.index(line)] = edit(line)
        return Expectation(node.services_of_line(line))

    return change


def _other_scheduler(node: IpvsCaptures, random: Random) -> Expectation | None:
    line = random.choice([line for line in node.virtual_servers() if len(node.real_servers_of(line)) > 1])
    node.servers[node.servers.index(line)] = line.replace("-s rr", "-s lc")
    return Expectation(node.services_of_line(line))


def _server_missing(node: IpvsCaptures, random: Random) -> Expectation | None:
    line = random.choice(node.virtual_servers())
    for other in (line, *node.real_servers_of(line)):
        node.servers.remove(other)
    return Expectation(node.services_of_line(line))


def _target_added(node: IpvsCaptures, random: Random) -> Expectation | None:
    line = random.choice(node.real_servers())
    more = re.sub(r"-r (\[?)[^.\]:]+", lambda found: f"-r {found[1]}{'fd01' if found[1] else '11'}", line)
    node.servers.insert(node.servers.index(line), more)
    return Expectation(node.services_of_line(line))


def _target_of_other(node: IpvsCaptures, random: Random) -> Expectation | None:
    line = random.choice(node.real_servers())
    mine = node.services_of_line(line)
    others = [
        other
        for other in node.real_servers()
        if node.services_of_line(other)[0].partition(":")[0] != mine[0].partition(":")[0]
    ]
    end = random.choice(others).split(" -r ")[1]
    node.servers[node.servers.index(line)] = f"{line.split(' -r ')[0]} -r {end}"
    return Expectation(mine)


def _element_missing(name: str) -> Change:
    def change(node: IpvsCaptures, random: Random) -> Expectation | None:
        lines = node.elements(name)
        if not lines:
            return None
        line = random.choice(lines)
        expectation = Expectation(
            node.services_of_endpoint(line) if name == "KUBE-LOOP-BACK" else node.services_of_line(line)
        )
        node.sets.remove(line)
        return expectation

    return change


def _frontend_missing(name: str) -> Change:
    """Remove a frontend from a set of frontends that are accepted and masqueraded."""

    def change(node: IpvsCaptures, random: Random) -> Expectation | None:
        lines = node.elements(name)
        if not lines:
            return None
        line = random.choice(lines)
        node.sets.remove(line)
        if any(node.services_of_line(line) == node.services_of_line(other) for other in node.real_servers()):
            return Expectation(node.services_of_line(line))
        return Expectation(
            node.services_of_line(line), "without endpoints, IPVS or the rule for other ports rejects the packets"
        )

    return change


def _node_port_missing(node: IpvsCaptures, random: Random) -> Expectation | None:
    lines = node.elements("KUBE-NODE-PORT-TCP")
    if not lines:
        return None
    line = random.choice(lines)
    node.sets.remove(line)
    port = line.split()[2]
    if any(other.split()[2] == port for other in node.elements("KUBE-NODE-PORT-LOCAL-TCP")):
        return Expectation(
            node.services_of_line(line), "policy Local: a rule for these returns before the lookup in the set"
        )
    if not any(node.services_of_line(line) == node.services_of_line(other) for other in node.real_servers()):
        return Expectation(
            node.services_of_line(line), "without endpoints, IPVS rejects the packets, masqueraded or not"
        )
    return Expectation(node.services_of_line(line))


def _not_bound_in_set(node: IpvsCaptures, random: Random) -> Expectation | None:
    """Remove an address from the set whose other ports are rejected."""
    line = random.choice(node.elements("KUBE-IPVS-IPS"))
    node.sets.remove(line)
    if line.split()[2].startswith(("10.96.", "fd00:10:96:")):
        return Expectation(node.services_of_line(line))
    return Expectation(
        node.services_of_line(line), "knft rejects only other ports of cluster IPs: the mutant is closer to knft"
    )


def _element_edited(name: str, pattern: str, new: Callable[[re.Match[str]], str]) -> Change:
    def change(node: IpvsCaptures, random: Random) -> Expectation | None:
        lines = node.elements(name)
        if not lines:
            return None
        line = random.choice(lines)
        edited = re.sub(pattern, new, line)
        assert edited != line
        node.sets[node.sets.index(line)] = edited
        return Expectation(node.services_of_line(line))

    return change


def _rule_missing(table: str, chain: str, has: str) -> Change:
    def change(node: IpvsCaptures, _: Random) -> Expectation | None:
        node.rules.remove(node.rules.find(table, chain, has)[0])
        return Expectation()

    return change


def _rule_edited(table: str, chain: str, old: str, new: str) -> Change:
    def change(node: IpvsCaptures, _: Random) -> Expectation | None:
        place = node.rules.find(table, chain, old)[0]
        node.rules.replace(place, re.sub(old, new, place.text, count=1))
        return Expectation()

    return change


def _guard_missing(node: IpvsCaptures, _: Random) -> Expectation | None:
    """Accept packets from all sources at frontends with source ranges."""
    guarded = node.elements("KUBE-LOAD-BALANCER-FW")
    if not guarded:
        return None
    node.rules.remove(node.rules.find("filter", "KUBE-SOURCE-RANGES-FIREWALL", "-j DROP")[0])
    return Expectation(tuple(name for line in guarded for name in node.services_of_line(line)))


def _uninterpreted_rule(node: IpvsCaptures, random: Random) -> Expectation | None:
    lines = node.virtual_servers()
    line = random.choice(lines)
    address = line.split()[2].rpartition(":")[0].strip("[]")
    first = node.rules.find("nat", "KUBE-SERVICES")[0]
    text = f"-A KUBE-SERVICES -d {address} -m bpf --bytecode 4,48_0_0_9,21_0_1_6,6_0_0_1,6_0_0_0 -j ACCEPT"
    node.rules.insert(first, text)
    service = node.services_of_line(line)[0]
    return Expectation((service, service.partition(":")[0]), line=node.rules.line_of(text))


def _wider(found: re.Match[str]) -> str:
    return f"/{int(found[1]) + 1}"


OPERATORS: tuple[Operator[IpvsCaptures], ...] = (
    Operator("real server missing", "one of several", _target(lambda _: "", 2)),
    Operator("real server added", "an address that no endpoint has", _target_added),
    Operator("real server of another Service", "Service", _target_of_other),
    Operator("wrong real port", "by one", _target(_next_port)),
    Operator("wrong weight", "twice the others'", _target(lambda line: line.replace("-w 1", "-w 2"), 2)),
    Operator("weight 0", "the server gets no connections", _target(lambda line: line.replace("-w 1", "-w 0"))),
    Operator("other scheduler", "the one with the fewest connections", _other_scheduler),
    Operator("virtual server missing", "whole", _server_missing),
    Operator("other persistence", "by a second", _server(lambda line: f"{line}1", " -p ")),
    Operator(
        "persistence missing", "clients are not recorded", _server(lambda line: line.partition(" -p ")[0], " -p ")
    ),
    Operator("persistence added", "for all clients", _server(lambda line: f"{line.partition(' -p ')[0]} -p 77")),
    Operator("cluster IP not in its set", "no masquerade", _frontend_missing("KUBE-CLUSTER-IP")),
    Operator("load balancer not in its set", "no masquerade", _frontend_missing("KUBE-LOAD-BALANCER")),
    Operator("local load balancer not in its set", "a masquerade", _element_missing("KUBE-LOAD-BALANCER-LOCAL")),
    Operator("external IP not in its set", "no masquerade", _frontend_missing("KUBE-EXTERNAL-IP")),
    Operator("NodePort not in its set", "no masquerade", _node_port_missing),
    Operator("local NodePort not in its set", "a masquerade", _element_missing("KUBE-NODE-PORT-LOCAL-TCP")),
    Operator("hairpin missing", "of an endpoint on the node", _element_missing("KUBE-LOOP-BACK")),
    Operator("address not in KUBE-IPVS-IPS", "other ports are not rejected", _not_bound_in_set),
    Operator("firewall rule missing", "not in KUBE-LOAD-BALANCER-FW", _element_missing("KUBE-LOAD-BALANCER-FW")),
    Operator("source range missing", "one of two", _element_missing("KUBE-LOAD-BALANCER-SOURCE-CIDR")),
    Operator("source range narrower", "half", _element_edited("KUBE-LOAD-BALANCER-SOURCE-CIDR", r"/(\d+)$", _wider)),
    Operator("firewall without drop", "no drop", _guard_missing),
    Operator("uninterpreted match", "before all other rules", _uninterpreted_rule),
    Operator("no services from outside", "jump", _rule_missing("nat", "PREROUTING", "KUBE-SERVICES")),
    Operator("no services from the node", "jump", _rule_missing("nat", "OUTPUT", "KUBE-SERVICES")),
    Operator("no postrouting", "jump", _rule_missing("nat", "POSTROUTING", "KUBE-POSTROUTING")),
    Operator("no masquerade", "rule", _rule_missing("nat", "KUBE-POSTROUTING", "random-fully")),
    Operator("no hairpins", "rule", _rule_missing("nat", "KUBE-POSTROUTING", "KUBE-.*LOOP-BACK")),
    Operator("wrong mark", "set", _rule_edited("nat", "KUBE-MARK-MASQ", "0x00004000", "0x00008000")),
    Operator(
        "mark overwritten",
        "all other bits",
        _rule_edited("nat", "KUBE-MARK-MASQ", "--or-mark 0x00004000", "--set-xmark 0x4000/0xffffffff"),
    ),
    Operator("no access filter", "jump", _rule_missing("filter", "INPUT", "KUBE-IPVS-FILTER")),
)
