"""Faults of frontends, filters and jumps in mode iptables."""

import re
from ipaddress import ip_network
from random import Random

from tests.mutation.iptables_pools import POOL_OPERATORS
from tests.mutation.iptables_rules import (
    CLUSTER_IPS,
    DNAT,
    DROP_RULES,
    EXTERNAL,
    FIREWALL,
    FRONTENDS,
    NODE_PORTS,
    POOLS,
    RANGES,
    REJECT_RULES,
    Change,
    Find,
    choose,
    edit_rule,
    find,
    increased_by,
    remove_rule,
)
from tests.mutation.iptables_save import IptablesSave, RuleLine
from tests.mutation.operator import Expectation, Operator

_MARKED = find("nat", "KUBE-EXT-*", "masquerade traffic for")
_SHORT_CIRCUIT = find("nat", "KUBE-EXT-*", "pod traffic")
_MARKED_CLUSTER_IPS = find("nat", "KUBE-SV*", "KUBE-MARK-MASQ")
_UNUSED_CLUSTER_IPS = {True: "10.96.0.250", False: "fd00:10:96::fa"}
"""Cluster IPs of no Service, by whether they are IPv4."""


def _policy_swapped(saved: IptablesSave, random: Random) -> Expectation | None:
    """Use all endpoints for external packets, instead of those on the node."""
    place = choose(saved.find("nat", "KUBE-EXT-*", "-j KUBE-SVL"), random)
    if place is None:
        return None
    service, cluster = saved.service_of_rule(place), place.target.replace("SVL", "SVC")
    saved.replace(place, place.text.replace("SVL", "SVC"))
    ends = {found.target for found in saved.find("nat", cluster, "-j KUBE-SEP")}
    if ends == {found.target for found in saved.find("nat", place.target, "-j KUBE-SEP")}:
        return Expectation((service,), "all endpoints are on the node, and neither chain marks external packets")
    return Expectation((service,))


def _mark_after_jump(saved: IptablesSave, random: Random) -> Expectation | None:
    """Set the mark after the jump to the endpoints."""
    place = choose(saved.find("nat", "KUBE-EXT-*", "masquerade traffic for"), random)
    if place is None:
        return None
    saved.swap(place, saved.find("nat", place.chain)[-1])
    return Expectation((saved.service_of_rule(place),))


def _stale_chain(saved: IptablesSave, random: Random) -> Expectation | None:
    """Add a frontend of a removed Service, with the chains of another."""
    place = choose(CLUSTER_IPS(saved), random)
    if place is None:
        return None
    text = re.sub(r"shop/[a-z]+:[a-z]+", "shop/bygone:http", place.text)
    saved.append(place, re.sub(r"-d \S+", f"-d {_UNUSED_CLUSTER_IPS[_is_ipv4(place)]}", text))
    return Expectation(("shop/bygone:http",))


def _is_ipv4(place: RuleLine) -> bool:
    return ":" not in place.text.partition(" -d ")[2].split()[0]


def _targets_swapped(saved: IptablesSave, random: Random) -> Expectation | None:
    found = CLUSTER_IPS(saved)
    if len(found) < 2:
        return None
    one, other = random.sample(list(found), 2)
    saved.replace(one, one.text.replace(one.target, other.target))
    saved.replace(other, other.text.replace(other.target, one.target))
    return Expectation((saved.service_of_rule(one), saved.service_of_rule(other)))


def _unmarked_external(saved: IptablesSave, random: Random) -> Expectation | None:
    """Use the chain of the cluster IP for an external address."""
    places = [place for place in EXTERNAL(saved) if "KUBE-EXT" in place.target]
    place = choose([item for item in places if saved.find("nat", item.target.replace("EXT", "SVC"))], random)
    if place is None:
        return None
    saved.replace(place, place.text.replace("KUBE-EXT", "KUBE-SVC"))
    return Expectation((saved.service_of_rule(place),))


def _before(verdict: str, find: Find) -> Change:
    """Insert a rule with a verdict before all others, for one frontend."""

    def change(saved: IptablesSave, random: Random) -> Expectation | None:
        place = choose(find(saved), random)
        if place is None:
            return None
        service = saved.service_of_rule(place)
        first = saved.find(place.table, place.chain)[0]
        saved.insert(first, re.sub(r"-j \S+( .*)?$", f"-j {verdict}", place.text))
        return Expectation((service,))

    return change


def _endpoint_blocked(saved: IptablesSave, random: Random) -> Expectation | None:
    """Drop forwarded packets to one endpoint."""
    place = choose([place for place in DNAT(saved) if _is_used(saved, place)], random)
    if place is None:
        return None
    address = re.sub(r"^\[?(.*?)\]?:\d+$", r"\1", place.text.rpartition(" ")[2])
    first = saved.find("filter", "KUBE-FORWARD")[0]
    saved.insert(first, f"-A KUBE-FORWARD -d {address} -j DROP")
    return Expectation((saved.service_of_rule(place),))


def _is_used(saved: IptablesSave, dnat: RuleLine) -> bool:
    return bool(saved.find("nat", POOLS, f"-j {dnat.chain}"))


def _uninterpreted_rule(saved: IptablesSave, random: Random) -> Expectation | None:
    """Insert an uninterpreted rule before the rule of one frontend."""
    place = choose(FRONTENDS(saved), random)
    if place is None:
        return None
    text = re.sub(r"-j \S+$", "-m bpf --bytecode 4,48_0_0_9,21_0_1_6,6_0_0_1,6_0_0_0 -j ACCEPT", place.text)
    saved.insert(place, text)
    return Expectation((saved.service_of_rule(place),), line=saved.line_of(text))


def _uninterpreted_target(saved: IptablesSave, random: Random) -> Expectation | None:
    place = choose(FRONTENDS(saved), random)
    if place is None:
        return None
    text = re.sub(r"-j \S+$", "-j NFQUEUE --queue-num 7", place.text)
    saved.insert(place, text)
    return Expectation((saved.service_of_rule(place),), line=saved.line_of(text))


def _node_ports_first(saved: IptablesSave, random: Random) -> Expectation | None:  # noqa: ARG001 - there is one such rule
    """Match NodePorts before addresses; no frontend has the port number of a NodePort."""
    last = saved.find("nat", "KUBE-SERVICES", "KUBE-NODEPORTS")[0]
    saved.remove(last)
    saved.insert(saved.find("nat", "KUBE-SERVICES")[0], last.text)
    return Expectation((), "no frontend has the port number of a NodePort: no packet matches both")


def _node_port_taken(saved: IptablesSave, random: Random) -> Expectation | None:
    """Match a NodePort with the port number of a frontend before it."""
    found = NODE_PORTS(saved), [item for item in CLUSTER_IPS(saved) if " -p tcp " in item.text]
    port, frontend = choose([item for item in found[0] if " -p tcp " in item.text], random), choose(found[1], random)
    if port is None or frontend is None or saved.service_of_rule(port) == saved.service_of_rule(frontend):
        return None
    first = saved.find("nat", "KUBE-SERVICES")[0]
    taken = re.sub(r"--dport \d+", "--dport 80", port.text.replace("-A KUBE-NODEPORTS", "-A KUBE-SERVICES"))
    saved.insert(first, taken.replace(" -j ", f" -d {frontend.text.partition(' -d ')[2].split()[0]} -j "))
    return Expectation((saved.service_of_rule(frontend),))


def _return_last(saved: IptablesSave, random: Random) -> Expectation | None:  # noqa: ARG001
    """Masquerade before the check of the mark."""
    place = saved.find("nat", "KUBE-POSTROUTING", "-j RETURN")[0]
    saved.swap(place, saved.find("nat", "KUBE-POSTROUTING", "MASQUERADE")[0])
    return Expectation()


def _range_ended(saved: IptablesSave, random: Random) -> Expectation | None:
    """Insert a RETURN before the source ranges."""
    place = choose(RANGES(saved), random)
    if place is None:
        return None
    first = saved.find("nat", place.chain)[0]
    saved.insert(first, f"-A {place.chain} -j RETURN")
    return Expectation((saved.service_of_rule(place),))


def _range_added(saved: IptablesSave, random: Random) -> Expectation | None:
    place = choose(RANGES(saved), random)
    if place is None:
        return None
    more = "2001:db8:77::/64" if ":" in place.text.rpartition(" -s ")[2] else "203.0.113.64/26"
    saved.append(place, re.sub(r" -s \S+", f" -s {more}", place.text))
    return Expectation((saved.service_of_rule(place),))


def _is_forwarding_accept(saved: IptablesSave, random: Random) -> Expectation | None:
    place = choose(saved.find("filter", "KUBE-FORWARD", "-j ACCEPT"), random)
    if place is None:
        return None
    saved.remove(place)
    return Expectation((), "no rule after KUBE-FORWARD drops, and the policy is accept")


def _health_check_missing(saved: IptablesSave, random: Random) -> Expectation | None:
    place = choose(saved.find("filter", "KUBE-NODEPORTS", "health check"), random)
    if place is None:
        return None
    saved.remove(place)
    return Expectation((), "no rule after KUBE-NODEPORTS drops, and the policy is accept")


def _invalid_passed(saved: IptablesSave, random: Random) -> Expectation | None:
    place = choose(saved.find("filter", "KUBE-FORWARD", "INVALID"), random)
    if place is None:
        return None
    saved.remove(place)
    return Expectation((), "knft does not drop packets in state invalid (an expected difference)")


def _jump(table: str, base: str, chain: str) -> Find:
    return find(table, base, f"-j {chain}$")


def _remove_jump_to_firewall(base: str) -> Change:
    """Remove a jump to the firewall from a built-in chain."""

    def change(saved: IptablesSave, random: Random) -> Expectation | None:
        guarded = FIREWALL(saved)
        if not guarded:
            return None
        services = tuple(saved.service_of_rule(place) for place in guarded)
        remove_rule(_jump("filter", base, "KUBE-PROXY-FIREWALL"), of_all=True)(saved, random)
        return Expectation(services)

    return change


def _remove_jump_to_rejects(chain: str) -> Change:
    """Remove the jump of forwarded packets to reject rules; NodePorts are not forwarded."""

    def change(saved: IptablesSave, random: Random) -> Expectation | None:
        reject_rules = saved.find("filter", chain, "has no")
        if not reject_rules:
            return None
        services = tuple(saved.service_of_rule(place) for place in reject_rules if " -d " in place.text)
        remove_rule(_jump("filter", "FORWARD", chain), of_all=True)(saved, random)
        return Expectation(services, "" if services else "it rejects only packets to addresses of the node")

    return change


def _resized(by: int) -> Change:
    return edit_rule(RANGES, r"-s (\S+)", lambda found: f"-s {_network(found[1], by)}")


def _network(text: str, by: int) -> str:
    address, _, length = text.partition("/")
    return str(ip_network(f"{address}/{int(length) + by}", strict=False))


FRONTEND_OPERATORS: tuple[Operator[IptablesSave], ...] = (
    Operator("frontend missing", "of an address", remove_rule(FRONTENDS)),
    Operator("wrong frontend port", "of an address", edit_rule(FRONTENDS, r"(--dport )(\d+)", increased_by(1))),
    Operator(
        "wrong protocol", "SCTP-Lite for the right one", edit_rule(FRONTENDS, r"-m \w+ -p \w+ ", "-m dccp -p dccp ")
    ),
    Operator("NodePort missing", "on the node's addresses", remove_rule(NODE_PORTS)),
    Operator("wrong NodePort", "by one", edit_rule(NODE_PORTS, r"(--dport )(\d+)", increased_by(5))),
    Operator("targets swapped", "of two cluster IPs", _targets_swapped),
    Operator("stale chain", "the frontend of a removed Service", _stale_chain),
    Operator("external as internal", "an external address uses the chain of the cluster IP", _unmarked_external),
    Operator("policy swapped", "Cluster for Local", _policy_swapped),
    Operator("no short-circuit for pods", "pods take the path of external clients", remove_rule(_SHORT_CIRCUIT)),
    Operator("masquerade missing", "for external clients", remove_rule(_MARKED)),
    Operator("masquerade after the jump", "after the jump", _mark_after_jump),
    Operator("masquerade of cluster IP missing", "for sources that are not pods", remove_rule(_MARKED_CLUSTER_IPS)),
    Operator("extra accept", "before the rule of a frontend", _before("ACCEPT", FRONTENDS)),
    Operator("extra return", "before the rule of a frontend", _before("RETURN", FRONTENDS)),
    Operator("extra return at a NodePort", "before its rule", _before("RETURN", NODE_PORTS)),
    Operator("endpoint blocked", "when forwarded to", _endpoint_blocked),
    Operator("uninterpreted match", "before the rule of a frontend", _uninterpreted_rule),
    Operator("uninterpreted target", "before the rule of a frontend", _uninterpreted_target),
    Operator("NodePorts first", "before addresses", _node_ports_first),
    Operator("NodePort takes a frontend", "before its rule", _node_port_taken),
)


FILTER_OPERATORS: tuple[Operator[IptablesSave], ...] = (
    Operator("reject missing", "without endpoints", remove_rule(REJECT_RULES)),
    Operator("reject becomes drop", "dropped instead of rejected", edit_rule(REJECT_RULES, "-j REJECT", "-j DROP")),
    Operator(
        "reject with another reply",
        "prohibited by an administrator",
        edit_rule(REJECT_RULES, "-j REJECT", "-j REJECT --reject-with icmp-admin-prohibited"),
    ),
    Operator("reject of another port", "of another port", edit_rule(REJECT_RULES, r"(--dport )(\d+)", increased_by(1))),
    Operator("drop missing", "without local endpoints", remove_rule(DROP_RULES)),
    Operator("drop becomes reject", "rejected instead of dropped", edit_rule(DROP_RULES, "-j DROP", "-j REJECT")),
    Operator("firewall rule missing", "no drop after the source ranges", remove_rule(FIREWALL)),
    Operator("firewall rejects", "rejects instead of dropping", edit_rule(FIREWALL, "-j DROP", "-j REJECT")),
    Operator("firewall unreached", "by forwarded packets", _remove_jump_to_firewall("FORWARD")),
    Operator("source range wider", "twice", _resized(-1)),
    Operator("source range narrower", "half", _resized(1)),
    Operator("source range missing", "one of two", remove_rule(RANGES)),
    Operator("source range added", "of others", _range_added),
    Operator("source ranges after the end", "after a RETURN", _range_ended),
    Operator("jump to reject rules missing", "by forwarded packets", _remove_jump_to_rejects("KUBE-SERVICES")),
    Operator("jump to drop rules missing", "by forwarded packets", _remove_jump_to_rejects("KUBE-EXTERNAL-SERVICES")),
    Operator("forwarding rule missing", "which accepts", _is_forwarding_accept),
    Operator("health check port missing", "which is accepted", _health_check_missing),
    Operator("invalid packets passed", "when forwarded", _invalid_passed),
)


def _edit_every_rule(table: str, chain: str, pattern: str, new: str) -> Change:
    return edit_rule(find(table, chain, pattern), pattern, new, of_all=True)


GLOBAL_OPERATORS: tuple[Operator[IptablesSave], ...] = (
    Operator(
        "no services from outside", "PREROUTING", remove_rule(_jump("nat", "PREROUTING", "KUBE-SERVICES"), of_all=True)
    ),
    Operator("no services from the node", "OUTPUT", remove_rule(_jump("nat", "OUTPUT", "KUBE-SERVICES"), of_all=True)),
    Operator("no postrouting", "jump", remove_rule(_jump("nat", "POSTROUTING", "KUBE-POSTROUTING"), of_all=True)),
    Operator("no masquerade", "rule", remove_rule(find("nat", "KUBE-POSTROUTING", "MASQUERADE"), of_all=True)),
    Operator("wrong mark", "set", _edit_every_rule("nat", "KUBE-MARK-MASQ", "0x00004000", "0x00008000")),
    Operator(
        "mark overwritten",
        "all other bits",
        _edit_every_rule("nat", "KUBE-MARK-MASQ", "--or-mark 0x00004000", "--set-xmark 0x4000/0xffffffff"),
    ),
    Operator(
        "wrong mark looked for",
        "in postrouting",
        _edit_every_rule("nat", "KUBE-POSTROUTING", "0x4000/|0x00004000/", "0x00008000/"),
    ),
    Operator("mark not set", "by KUBE-MARK-MASQ", remove_rule(find("nat", "KUBE-MARK-MASQ"), of_all=True)),
    Operator("masquerade before the check of the mark", "so that every packet is masqueraded", _return_last),
    Operator(
        "NodePorts unreached",
        "no chain jumps to them",
        remove_rule(_jump("nat", "KUBE-SERVICES", "KUBE-NODEPORTS"), of_all=True),
    ),
    Operator(
        "NodePorts on all addresses",
        "not only on addresses of the node",
        _edit_every_rule("nat", "KUBE-SERVICES", "-m addrtype --dst-type LOCAL ", ""),
    ),
)

OPERATORS = (*POOL_OPERATORS, *FRONTEND_OPERATORS, *FILTER_OPERATORS, *GLOBAL_OPERATORS)
