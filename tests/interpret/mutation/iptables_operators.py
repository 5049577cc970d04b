"""Ways in which frontends, filters and jumps go wrong in mode iptables."""

import re
from ipaddress import ip_network
from random import Random

from tests.interpret.mutation.iptables_places import (
    CLUSTER_IPS,
    DNAT,
    EXTERNAL,
    FIREWALL,
    FORBIDDEN,
    FRONTENDS,
    NODE_PORTS,
    POOLS,
    RANGES,
    REFUSALS,
    Change,
    Find,
    edited,
    find,
    more,
    one_of,
    removed,
)
from tests.interpret.mutation.iptables_pools import OF_POOLS
from tests.interpret.mutation.operator import Operator, Touched
from tests.interpret.mutation.saved import Place, Saved

_MARKED = find("nat", "KUBE-EXT-*", "masquerade traffic for")
_SHORT_CIRCUIT = find("nat", "KUBE-EXT-*", "pod traffic")
_MARKED_CLUSTER_IPS = find("nat", "KUBE-SV*", "KUBE-MARK-MASQ")
_NO_SUCH = {True: "10.96.0.250", False: "fd00:10:96::fa"}
"""Cluster IPs of nobody, by whether they are IPv4."""


def _policy_swapped(saved: Saved, chance: Random) -> Touched | None:
    """Send packets from outside to all endpoints where only those of the node are meant."""
    place = one_of(saved.find("nat", "KUBE-EXT-*", "-j KUBE-SVL"), chance)
    if place is None:
        return None
    service, cluster = saved.service(place), place.target.replace("SVL", "SVC")
    saved.replace(place, place.text.replace("SVL", "SVC"))
    ends = {found.target for found in saved.find("nat", cluster, "-j KUBE-SEP")}
    if ends == {found.target for found in saved.find("nat", place.target, "-j KUBE-SEP")}:
        return Touched((service,), "all endpoints are on the node, and neither chain marks what comes from outside")
    return Touched((service,))


def _masquerade_late(saved: Saved, chance: Random) -> Touched | None:
    """Mark only what the jump before has not taken."""
    place = one_of(saved.find("nat", "KUBE-EXT-*", "masquerade traffic for"), chance)
    if place is None:
        return None
    saved.swap(place, saved.find("nat", place.chain)[-1])
    return Touched((saved.service(place),))


def _stale_chain(saved: Saved, chance: Random) -> Touched | None:
    """Leave a frontend of a Service that is gone, with chains that still lead somewhere."""
    place = one_of(CLUSTER_IPS(saved), chance)
    if place is None:
        return None
    text = re.sub(r"shop/[a-z]+:[a-z]+", "shop/bygone:http", place.text)
    saved.append(place, re.sub(r"-d \S+", f"-d {_NO_SUCH[_is_ipv4(place)]}", text))
    return Touched(("shop/bygone:http",))


def _is_ipv4(place: Place) -> bool:
    return ":" not in place.text.partition(" -d ")[2].split()[0]


def _targets_swapped(saved: Saved, chance: Random) -> Touched | None:
    found = CLUSTER_IPS(saved)
    if len(found) < 2:
        return None
    one, other = chance.sample(list(found), 2)
    saved.replace(one, one.text.replace(one.target, other.target))
    saved.replace(other, other.text.replace(other.target, one.target))
    return Touched((saved.service(one), saved.service(other)))


def _unmarked_external(saved: Saved, chance: Random) -> Touched | None:
    """Lead an address that others dial to the chain of the cluster IP."""
    places = [place for place in EXTERNAL(saved) if "KUBE-EXT" in place.target]
    place = one_of([item for item in places if saved.find("nat", item.target.replace("EXT", "SVC"))], chance)
    if place is None:
        return None
    saved.replace(place, place.text.replace("KUBE-EXT", "KUBE-SVC"))
    return Touched((saved.service(place),))


def _before(verdict: str, find: Find) -> Change:
    """Put a rule with a verdict in front of all others, for one frontend."""

    def change(saved: Saved, chance: Random) -> Touched | None:
        place = one_of(find(saved), chance)
        if place is None:
            return None
        service = saved.service(place)
        first = saved.find(place.table, place.chain)[0]
        saved.insert(first, re.sub(r"-j \S+( .*)?$", f"-j {verdict}", place.text))
        return Touched((service,))

    return change


def _endpoint_blocked(saved: Saved, chance: Random) -> Touched | None:
    """Drop what is forwarded to one endpoint; the Service is the one whose packets go there."""
    place = one_of([place for place in DNAT(saved) if _is_used(saved, place)], chance)
    if place is None:
        return None
    address = re.sub(r"^\[?(.*?)\]?:\d+$", r"\1", place.text.rpartition(" ")[2])
    first = saved.find("filter", "KUBE-FORWARD")[0]
    saved.insert(first, f"-A KUBE-FORWARD -d {address} -j DROP")
    return Touched((saved.service(place),))


def _is_used(saved: Saved, dnat: Place) -> bool:
    return bool(saved.find("nat", POOLS, f"-j {dnat.chain}"))


def _uninterpreted(saved: Saved, chance: Random) -> Touched | None:
    """Put a rule that nobody can read in front of one Service's chain."""
    place = one_of(FRONTENDS(saved), chance)
    if place is None:
        return None
    text = re.sub(r"-j \S+$", "-m bpf --bytecode 4,48_0_0_9,21_0_1_6,6_0_0_1,6_0_0_0 -j ACCEPT", place.text)
    saved.insert(place, text)
    return Touched((saved.service(place),), line=saved.line_of(text))


def _uninterpreted_target(saved: Saved, chance: Random) -> Touched | None:
    place = one_of(FRONTENDS(saved), chance)
    if place is None:
        return None
    text = re.sub(r"-j \S+$", "-j NFQUEUE --queue-num 7", place.text)
    saved.insert(place, text)
    return Touched((saved.service(place),), line=saved.line_of(text))


def _node_ports_first(saved: Saved, chance: Random) -> Touched | None:  # noqa: ARG001 - there is one such rule
    """Look for NodePorts before addresses: as no frontend has a NodePort's number, nobody is taken from another."""
    last = saved.find("nat", "KUBE-SERVICES", "KUBE-NODEPORTS")[0]
    saved.remove(last)
    saved.insert(saved.find("nat", "KUBE-SERVICES")[0], last.text)
    return Touched((), "NodePorts have numbers that no frontend with an address has: no packet matches both")


def _node_port_taken(saved: Saved, chance: Random) -> Touched | None:
    """Look for NodePorts first, where one of them has the number of an address's frontend."""
    found = NODE_PORTS(saved), [item for item in CLUSTER_IPS(saved) if " -p tcp " in item.text]
    port, frontend = one_of([item for item in found[0] if " -p tcp " in item.text], chance), one_of(found[1], chance)
    if port is None or frontend is None or saved.service(port) == saved.service(frontend):
        return None
    first = saved.find("nat", "KUBE-SERVICES")[0]
    taken = re.sub(r"--dport \d+", "--dport 80", port.text.replace("-A KUBE-NODEPORTS", "-A KUBE-SERVICES"))
    saved.insert(first, taken.replace(" -j ", f" -d {frontend.text.partition(' -d ')[2].split()[0]} -j "))
    return Touched((saved.service(frontend),))


def _return_last(saved: Saved, chance: Random) -> Touched | None:  # noqa: ARG001
    """Masquerade before looking whether it was asked for."""
    place = saved.find("nat", "KUBE-POSTROUTING", "-j RETURN")[0]
    saved.swap(place, saved.find("nat", "KUBE-POSTROUTING", "MASQUERADE")[0])
    return Touched()


def _range_ended(saved: Saved, chance: Random) -> Touched | None:
    """Have a RETURN in front of the source ranges, so that they come after the end."""
    place = one_of(RANGES(saved), chance)
    if place is None:
        return None
    first = saved.find("nat", place.chain)[0]
    saved.insert(first, f"-A {place.chain} -j RETURN")
    return Touched((saved.service(place),))


def _range_added(saved: Saved, chance: Random) -> Touched | None:
    place = one_of(RANGES(saved), chance)
    if place is None:
        return None
    more = "2001:db8:77::/64" if ":" in place.text.rpartition(" -s ")[2] else "203.0.113.64/26"
    saved.append(place, re.sub(r" -s \S+", f" -s {more}", place.text))
    return Touched((saved.service(place),))


def _is_forwarding_accept(saved: Saved, chance: Random) -> Touched | None:
    place = one_of(saved.find("filter", "KUBE-FORWARD", "-j ACCEPT"), chance)
    if place is None:
        return None
    saved.remove(place)
    return Touched((), "nothing after KUBE-FORWARD drops: the host's policy is to accept")


def _health_check_missing(saved: Saved, chance: Random) -> Touched | None:
    place = one_of(saved.find("filter", "KUBE-NODEPORTS", "health check"), chance)
    if place is None:
        return None
    saved.remove(place)
    return Touched((), "nothing after KUBE-NODEPORTS drops: the host's policy is to accept")


def _invalid_passed(saved: Saved, chance: Random) -> Touched | None:
    place = one_of(saved.find("filter", "KUBE-FORWARD", "INVALID"), chance)
    if place is None:
        return None
    saved.remove(place)
    return Touched((), "knft drops no packets that conntrack can place nowhere, by intent")


def _jump(table: str, base: str, chain: str) -> Find:
    return find(table, base, f"-j {chain}$")


def _of_guarded(base: str) -> Change:
    """Take away a built-in chain's jump to the firewall: whose VIPs that opens, if anybody's."""

    def change(saved: Saved, chance: Random) -> Touched | None:
        guarded = FIREWALL(saved)
        if not guarded:
            return None
        services = tuple(saved.service(place) for place in guarded)
        removed(_jump("filter", base, "KUBE-PROXY-FIREWALL"), of_all=True)(saved, chance)
        return Touched(services)

    return change


def _refusals_unreached(chain: str) -> Change:
    """Take away the jump of what is forwarded to refusals of a kind; those of NodePorts are not forwarded."""

    def change(saved: Saved, chance: Random) -> Touched | None:
        refused = saved.find("filter", chain, "has no")
        if not refused:
            return None
        services = tuple(saved.service(place) for place in refused if " -d " in place.text)
        removed(_jump("filter", "FORWARD", chain), of_all=True)(saved, chance)
        return Touched(services, "" if services else "all that it refuses is dialled at the node's own addresses")

    return change


def _resized(by: int) -> Change:
    return edited(RANGES, r"-s (\S+)", lambda found: f"-s {_network(found[1], by)}")


def _network(text: str, by: int) -> str:
    address, _, length = text.partition("/")
    return str(ip_network(f"{address}/{int(length) + by}", strict=False))


OF_FRONTENDS: tuple[Operator[Saved], ...] = (
    Operator("frontend missing", "of an address", removed(FRONTENDS)),
    Operator("wrong frontend port", "of an address", edited(FRONTENDS, r"(--dport )(\d+)", more(1))),
    Operator("wrong protocol", "SCTP-Lite for the right one", edited(FRONTENDS, r"-m \w+ -p \w+ ", "-m dccp -p dccp ")),
    Operator("NodePort missing", "on the node's addresses", removed(NODE_PORTS)),
    Operator("wrong NodePort", "by one", edited(NODE_PORTS, r"(--dport )(\d+)", more(5))),
    Operator("targets swapped", "of two cluster IPs", _targets_swapped),
    Operator("stale chain", "the frontend of a Service that is gone", _stale_chain),
    Operator("external as internal", "an external address leads where the cluster IP does", _unmarked_external),
    Operator("policy swapped", "Cluster for Local", _policy_swapped),
    Operator("pods as outsiders", "and the node's own addresses among theirs", removed(_SHORT_CIRCUIT)),
    Operator("masquerade missing", "for what comes from outside", removed(_MARKED)),
    Operator("masquerade late", "after the jump", _masquerade_late),
    Operator("masquerade of cluster IP missing", "for what is no pod's", removed(_MARKED_CLUSTER_IPS)),
    Operator("extra accept", "in front of a frontend", _before("ACCEPT", FRONTENDS)),
    Operator("extra return", "in front of a frontend", _before("RETURN", FRONTENDS)),
    Operator("extra return at a NodePort", "in front of it", _before("RETURN", NODE_PORTS)),
    Operator("endpoint blocked", "when forwarded to", _endpoint_blocked),
    Operator("match of nobody knows what", "in front of a frontend", _uninterpreted),
    Operator("target of nobody knows what", "in front of a frontend", _uninterpreted_target),
    Operator("NodePorts first", "before addresses", _node_ports_first),
    Operator("NodePort takes a frontend", "in front of its rule", _node_port_taken),
)


OF_FILTERS: tuple[Operator[Saved], ...] = (
    Operator("refusal missing", "without endpoints", removed(REFUSALS)),
    Operator("refusal silent", "dropped, not refused", edited(REFUSALS, "-j REJECT", "-j DROP")),
    Operator("refusal of others", "of another port", edited(REFUSALS, r"(--dport )(\d+)", more(1))),
    Operator("drop missing", "without local endpoints", removed(FORBIDDEN)),
    Operator("drop said aloud", "refused, not dropped", edited(FORBIDDEN, "-j DROP", "-j REJECT")),
    Operator("firewall hole", "no drop behind the source ranges", removed(FIREWALL)),
    Operator("firewall refuses", "where it drops", edited(FIREWALL, "-j DROP", "-j REJECT")),
    Operator("firewall unreached", "by what is forwarded", _of_guarded("FORWARD")),
    Operator("source range wider", "twice", _resized(-1)),
    Operator("source range narrower", "half", _resized(1)),
    Operator("source range missing", "one of two", removed(RANGES)),
    Operator("source range added", "of others", _range_added),
    Operator("source ranges after the end", "a return is before them", _range_ended),
    Operator("refusals unreached", "by what is forwarded", _refusals_unreached("KUBE-SERVICES")),
    Operator("drops unreached", "by what is forwarded", _refusals_unreached("KUBE-EXTERNAL-SERVICES")),
    Operator("forwarding rule missing", "which accepts", _is_forwarding_accept),
    Operator("health check port missing", "which is accepted", _health_check_missing),
    Operator("invalid packets passed", "when forwarded", _invalid_passed),
)


def _everywhere(table: str, chain: str, pattern: str, new: str) -> Change:
    return edited(find(table, chain, pattern), pattern, new, of_all=True)


OF_ALL: tuple[Operator[Saved], ...] = (
    Operator(
        "no services from outside", "PREROUTING", removed(_jump("nat", "PREROUTING", "KUBE-SERVICES"), of_all=True)
    ),
    Operator("no services from the node", "OUTPUT", removed(_jump("nat", "OUTPUT", "KUBE-SERVICES"), of_all=True)),
    Operator("no postrouting", "jump", removed(_jump("nat", "POSTROUTING", "KUBE-POSTROUTING"), of_all=True)),
    Operator("no masquerade", "rule", removed(find("nat", "KUBE-POSTROUTING", "MASQUERADE"), of_all=True)),
    Operator("wrong mark", "set", _everywhere("nat", "KUBE-MARK-MASQ", "0x00004000", "0x00008000")),
    Operator(
        "wrong mark looked for",
        "in postrouting",
        _everywhere("nat", "KUBE-POSTROUTING", "0x4000/|0x00004000/", "0x00008000/"),
    ),
    Operator("mark not set", "by KUBE-MARK-MASQ", removed(find("nat", "KUBE-MARK-MASQ"), of_all=True)),
    Operator("masquerade before the question", "whether it was asked for", _return_last),
    Operator(
        "NodePorts unreached", "by anybody", removed(_jump("nat", "KUBE-SERVICES", "KUBE-NODEPORTS"), of_all=True)
    ),
    Operator(
        "NodePorts of everybody",
        "not of the node alone",
        _everywhere("nat", "KUBE-SERVICES", "-m addrtype --dst-type LOCAL ", ""),
    ),
)

OPERATORS = (*OF_POOLS, *OF_FRONTENDS, *OF_FILTERS, *OF_ALL)
