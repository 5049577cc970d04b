"""Ways to write the same rules otherwise in mode iptables, or to have others' beside them."""

import re
from collections.abc import Callable
from ipaddress import ip_network
from random import Random

from tests.interpret.mutation.iptables_places import DNAT, FRONTENDS, RANDOM, RANGES, pools
from tests.interpret.mutation.operator import Rewrite
from tests.interpret.mutation.saved import Saved


def _renamed(saved: Saved, chance: Random) -> bool:
    """Give the chains of Services names with other hashes."""
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
    names: dict[str, str] = {}

    def other(found: re.Match[str]) -> str:
        return names.setdefault(found[0], f"{found[1]}{''.join(chance.choices(letters, k=16))}")

    saved.each(lambda line: re.sub(r"(KUBE-(?:SVC|SVL|EXT|FW|SEP)-)[A-Z2-7]{16}", other, line))
    return True


def _reordered(saved: Saved, chance: Random) -> bool:
    """Draw endpoints in another order, with the same probabilities at the same places."""
    for chain in pools(saved):
        rules = [item for item in saved.find("nat", chain, "-j KUBE-SEP") if "--rcheck" not in item.text]
        targets = [item.target for item in rules]
        chance.shuffle(targets)
        for item, target in zip(rules, targets, strict=True):
            if item.target != target:
                saved.replace(item, item.text.replace(item.target, target))
    return True


def _split(saved: Saved, chance: Random) -> bool:
    """Have a rule jump to a chain of its own, which does what it did."""
    place = chance.choice(FRONTENDS(saved))
    saved.append(saved.find("nat", place.chain)[-1], f"-A KUBE-SVC-SPLITSPLITSPLITS -j {place.target}")
    saved.replace(place, place.text.replace(f"-j {place.target}", "-j KUBE-SVC-SPLITSPLITSPLITS"))
    saved.declare("nat", "KUBE-SVC-SPLITSPLITSPLITS")
    return True


def _inlined(saved: Saved, chance: Random) -> bool:
    """Translate where the last endpoint's chain was jumped to."""
    endpoints = [item for item in DNAT(saved) if "--set" not in item.text]
    if not endpoints:
        return False
    chain = chance.choice(endpoints).chain
    inside = [item.text.partition(f"-A {chain} ")[2] for item in saved.find("nat", chain)]
    places = [item for item in saved.find("nat", "KUBE-SV*", f"-j {chain}$") if "--" not in item.text.split('"')[-1]]
    for place in reversed(places):
        saved.append(place, *(f"-A {place.chain} {rule}" for rule in inside))
        saved.remove(place)
    return bool(places)


def _counted(saved: Saved, chance: Random) -> bool:
    """Print counters, as iptables-save -c does."""
    saved.each(
        lambda line: f"[{chance.randrange(9999)}:{chance.randrange(99999)}] {line}" if line.startswith("-A") else line
    )
    return True


def _commented(saved: Saved, _: Random) -> bool:
    """Comment on rules that have no comment."""
    saved.each(
        lambda line: (
            f'{line} -m comment --comment "nobody\'s business"'
            if "--comment" not in line and " -j " not in line
            else line
        )
    )
    saved.each(lambda line: re.sub(r"^(-A \S+) -j", r'\1 -m comment --comment "a note" -j', line))
    return True


def _unreachable(saved: Saved, chance: Random) -> bool:
    """Say the last thing of a pool twice: the first ends it."""
    chain = chance.choice([name for name in pools(saved) if saved.find("nat", name, "-j KUBE-SEP")])
    last = saved.find("nat", chain)[-1]
    dnat = saved.find("nat", last.target, "-j DNAT")[0]
    saved.append(dnat, re.sub(r":\d+$", ":9", dnat.text), f"-A {dnat.chain} -j DROP")
    return True


def _jumped_twice(saved: Saved, _: Random) -> bool:
    """Come to all Services twice: who was translated is not asked again, and others find nothing again."""
    for base in ("PREROUTING", "OUTPUT"):
        place = saved.find("nat", base, "KUBE-SERVICES")[0]
        saved.append(place, place.text)
    return True


def _dockers(saved: Saved, _: Random) -> bool:
    """Have docker's chains beside, which look at other addresses."""
    masquerade = saved.find("nat", "POSTROUTING")[0]
    is_ipv4 = "127.0.0.0" in saved.text()
    network = "172.17.0.0/16" if is_ipv4 else "fd00:17::/64"
    saved.append(masquerade, f"-A POSTROUTING -s {network} ! -o docker0 -j MASQUERADE")
    first = saved.find("nat", "PREROUTING")[0]
    saved.append(first, "-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER")
    saved.append(first, "-A DOCKER -i docker0 -j RETURN")
    saved.declare("nat", "DOCKER")
    forward = saved.find("filter", "FORWARD")[-1]
    saved.append(
        forward,
        "-A FORWARD -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
        "-A FORWARD -j DOCKER-USER",
    )
    saved.append(saved.find("filter", "FORWARD")[-1], "-A DOCKER-USER -j RETURN")
    saved.declare("filter", "DOCKER-USER")
    return True


def _cnis(saved: Saved, _: Random) -> bool:
    """Have a CNI's chains beside, which masquerade what leaves the cluster and accept what pods send."""
    pods = "10.244.0.0/16" if "127.0.0.0" in saved.text() else "fd00:10:244::/48"
    saved.append(
        saved.find("nat", "POSTROUTING")[-1], '-A POSTROUTING -m comment --comment "flanneld masq" -j FLANNEL-POSTRTG'
    )
    saved.append(
        saved.find("nat", "POSTROUTING")[-1],
        "-A FLANNEL-POSTRTG -m mark --mark 0x4000/0x4000 -j RETURN",
        f"-A FLANNEL-POSTRTG -s {pods} -d {pods} -j RETURN",
    )
    saved.declare("nat", "FLANNEL-POSTRTG")
    saved.append(
        saved.find("filter", "FORWARD")[-1], f"-A FORWARD -s {pods} -j ACCEPT", f"-A FORWARD -d {pods} -j ACCEPT"
    )
    return True


def _firewallds(saved: Saved, _: Random) -> bool:
    """Have firewalld's tables beside, which mark in bits of their own."""
    saved.declare("mangle", "PREROUTING", "ACCEPT")
    saved.declare("raw", "PREROUTING", "ACCEPT")
    saved.declare("mangle", "INPUT_direct")
    return True


def _leading_nowhere(saved: Saved, _: Random) -> bool:
    """Have a chain of somebody that has no rules, and jumps to it."""
    for table, base in (("nat", "PREROUTING"), ("filter", "FORWARD"), ("filter", "INPUT")):
        saved.insert(saved.find(table, base)[0], f"-A {base} -j SOMEBODY")
    saved.declare("nat", "SOMEBODY")
    saved.declare("filter", "SOMEBODY")
    return True


def _options_first(saved: Saved, _: Random) -> bool:
    """Print options in the order of iptables-save: the header first, comments after other matches."""

    def other(line: str) -> str:
        found = re.match(r'(-A \S+) -m comment --comment ("[^"]*"|\S+)(.*?)( -j .*)?$', line)
        if found is None:
            return line
        rest, target = found[3], found[4] or ""
        header = "".join(re.findall(r"(?: !)? -[sd] \S+", rest))
        protocol = re.search(r" -m (\w+) -p \1", rest)
        plain = re.sub(r" -m (\w+) -p \1", "", re.sub(r"(?: !)? -[sd] \S+", "", rest))
        with_protocol = f" -p {protocol[1]} -m comment --comment {found[2]} -m {protocol[1]}{plain}" if protocol else ""
        return f"{found[1]}{header}{with_protocol or f' -m comment --comment {found[2]}{plain}'}{target}"

    saved.each(other)
    return True


def _multiport(saved: Saved, _: Random) -> bool:
    """Write ports by the match that can have many."""
    saved.each(
        lambda line: re.sub(r"-m (tcp|udp|sctp) -p \1 (.*?)--dport (\d+)", r"-p \1 \2-m multiport --dports \3", line)
    )
    return True


def _ports_as_ranges(saved: Saved, _: Random) -> bool:
    saved.each(lambda line: re.sub(r"--dport (\d+)\b", r"--dport \1:\1", line))
    return True


def _named_ports(saved: Saved, _: Random) -> bool:
    """Write protocols as the numbers that they have."""
    saved.each(lambda line: line.replace("-m tcp -p tcp", "-p 6 -m tcp").replace("-m udp -p udp", "-p 17 -m udp"))
    return True


def _marks_otherwise(saved: Saved, _: Random) -> bool:
    """Write marks as --set-xmark, as iptables-save does."""
    bit = "0x00004000"
    saved.each(lambda line: line.replace(f"--or-mark {bit}", "--set-xmark 0x4000/0x4000"))
    saved.each(lambda line: line.replace(f"--xor-mark {bit}", "--set-xmark 0x4000/0x0"))
    saved.each(lambda line: line.replace(f"--mark {bit}/{bit}", "--mark 0x4000/0x4000"))
    return True


def _networks_as_ranges(saved: Saved, _: Random) -> bool:
    """Write source ranges by their first and last addresses."""
    found = RANGES(saved)
    for place in found:
        network = ip_network(place.text.partition(" -s ")[2].split()[0])
        span = f" -m iprange --src-range {network[0]}-{network[-1]}"
        saved.replace(place, re.sub(r" -s \S+", span, place.text))
    return bool(found)


def _range_halved(saved: Saved, _: Random) -> bool:
    """Write a source range in two halves."""
    found = RANGES(saved)
    for place in reversed(found):
        network = ip_network(place.text.partition(" -s ")[2].split()[0])
        low, high = network.subnets()
        saved.append(place, re.sub(r" -s \S+", f" -s {high}", place.text))
        saved.replace(place, re.sub(r" -s \S+", f" -s {low}", place.text))
    return bool(found)


def _probabilities_exact(saved: Saved, _: Random) -> bool:
    """Write probabilities as the kernel has them, in steps of 2**-31."""

    def stepped(found: re.Match[str]) -> str:
        return f"--probability {round(float(found[1]) * 2**31) / 2**31:.11f}"

    saved.each(lambda line: re.sub(r"--probability (\S+)", stepped, line))
    return bool(RANDOM(saved))


def _shuffled(saved: Saved, _: Random) -> bool:
    """Write Services in another order: no two have a frontend in common."""
    for chain in ("KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES"):
        for table in ("nat", "filter"):
            found = saved.find(table, chain, r"-d \S+ --dport")
            for one, other in zip(found, found[::-1], strict=True):
                if one.at < other.at:
                    saved.swap(one, other)
    return True


Rewriting = Callable[[Saved, Random], bool]

REWRITES: tuple[Rewrite[Saved], ...] = (
    Rewrite("chains renamed", "consistently", _renamed),
    Rewrite("endpoints reordered", "with right probabilities", _reordered),
    Rewrite("rule split", "into a jump to a chain of its own", _split),
    Rewrite("chain inlined", "of an endpoint", _inlined),
    Rewrite("Services reordered", "no two of them meet", _shuffled),
    Rewrite("counters", "as iptables-save -c prints them", _counted),
    Rewrite("comments", "where there were none", _commented),
    Rewrite("rules that nobody reaches", "after one that ends", _unreachable),
    Rewrite("jumped to twice", "from both built-in chains", _jumped_twice),
    Rewrite("docker's chains", "beside", _dockers),
    Rewrite("a CNI's chains", "beside", _cnis),
    Rewrite("firewalld's tables", "beside", _firewallds),
    Rewrite("an empty chain", "that is jumped to", _leading_nowhere),
    Rewrite("order of options", "as iptables-save has it", _options_first),
    Rewrite("multiport", "for single ports", _multiport),
    Rewrite("ports as ranges", "of one", _ports_as_ranges),
    Rewrite("protocols as numbers", "6 and 17", _named_ports),
    Rewrite("marks as xmark", "as iptables-save has them", _marks_otherwise),
    Rewrite("networks as ranges", "by iprange", _networks_as_ranges),
    Rewrite("networks halved", "each in two rules", _range_halved),
    Rewrite("probabilities rounded", "as the kernel does", _probabilities_exact),
)
