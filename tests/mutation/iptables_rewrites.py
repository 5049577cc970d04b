"""Rewrites in mode iptables: the same rules written differently, or with rules of other programs."""

import re
from collections.abc import Callable
from ipaddress import ip_network
from random import Random

from tests.mutation.iptables_rules import DNAT, FRONTENDS, RANDOM, RANGES, pool_chains
from tests.mutation.iptables_save import IptablesSave
from tests.mutation.operator import Rewrite


def _renamed(saved: IptablesSave, random: Random) -> bool:
    """Rename the chains of Services."""
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
    names: dict[str, str] = {}

    def other(found: re.Match[str]) -> str:
        return names.setdefault(found[0], f"{found[1]}{''.join(random.choices(letters, k=16))}")

    saved.edit_lines(lambda line: re.sub(r"(KUBE-(?:SVC|SVL|EXT|FW|SEP)-)[A-Z2-7]{16}", other, line))
    return True


def _reordered(saved: IptablesSave, random: Random) -> bool:
    """Change the order of endpoints; the probabilities stay at their positions."""
    for chain in pool_chains(saved):
        rules = [item for item in saved.find("nat", chain, "-j KUBE-SEP") if "--rcheck" not in item.text]
        targets = [item.target for item in rules]
        random.shuffle(targets)
        for item, target in zip(rules, targets, strict=True):
            if item.target != target:
                saved.replace(item, item.text.replace(item.target, target))
    return True


def _split(saved: IptablesSave, random: Random) -> bool:
    """Replace the target of a rule by a chain that jumps to it."""
    place = random.choice(FRONTENDS(saved))
    saved.append(saved.find("nat", place.chain)[-1], f"-A KUBE-SVC-SPLITSPLITSPLITS -j {place.target}")
    saved.replace(place, place.text.replace(f"-j {place.target}", "-j KUBE-SVC-SPLITSPLITSPLITS"))
    saved.declare("nat", "KUBE-SVC-SPLITSPLITSPLITS")
    return True


def _inlined(saved: IptablesSave, random: Random) -> bool:
    """Replace the jump to the last endpoint by the rules of its chain."""
    endpoints = [item for item in DNAT(saved) if "--set" not in item.text]
    if not endpoints:
        return False
    chain = random.choice(endpoints).chain
    inside = [item.text.partition(f"-A {chain} ")[2] for item in saved.find("nat", chain)]
    places = [item for item in saved.find("nat", "KUBE-SV*", f"-j {chain}$") if "--" not in item.text.split('"')[-1]]
    for place in reversed(places):
        saved.append(place, *(f"-A {place.chain} {rule}" for rule in inside))
        saved.remove(place)
    return bool(places)


def _counted(saved: IptablesSave, random: Random) -> bool:
    """Add counters, like iptables-save --counters."""
    saved.edit_lines(
        lambda line: f"[{random.randrange(9999)}:{random.randrange(99999)}] {line}" if line.startswith("-A") else line
    )
    return True


def _commented(saved: IptablesSave, _: Random) -> bool:
    """Add comments to rules without one."""
    saved.edit_lines(
        lambda line: (
            f'{line} -m comment --comment "a comment"' if "--comment" not in line and " -j " not in line else line
        )
    )
    saved.edit_lines(lambda line: re.sub(r"^(-A \S+) -j", r'\1 -m comment --comment "a note" -j', line))
    return True


def _unreachable(saved: IptablesSave, random: Random) -> bool:
    """Add rules after the last rule of an endpoint."""
    chain = random.choice([name for name in pool_chains(saved) if saved.find("nat", name, "-j KUBE-SEP")])
    last = saved.find("nat", chain)[-1]
    dnat = saved.find("nat", last.target, "-j DNAT")[0]
    saved.append(dnat, re.sub(r":\d+$", ":9", dnat.text), f"-A {dnat.chain} -j DROP")
    return True


def _jumped_twice(saved: IptablesSave, _: Random) -> bool:
    """Jump to KUBE-SERVICES twice: translated packets have left the chain, others match nothing again."""
    for base in ("PREROUTING", "OUTPUT"):
        place = saved.find("nat", base, "KUBE-SERVICES")[0]
        saved.append(place, place.text)
    return True


def _with_docker_rules(saved: IptablesSave, _: Random) -> bool:
    """Add docker's chains, which match other addresses."""
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


def _with_cni_rules(saved: IptablesSave, _: Random) -> bool:
    """Add the chains of a CNI plugin, which masquerade packets that leave the cluster and accept those of pods."""
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


def _with_firewalld_rules(saved: IptablesSave, _: Random) -> bool:
    """Add firewalld's tables."""
    saved.declare("mangle", "PREROUTING", "ACCEPT")
    saved.declare("raw", "PREROUTING", "ACCEPT")
    saved.declare("mangle", "INPUT_direct")
    return True


def _with_jumps_to_empty_chain(saved: IptablesSave, _: Random) -> bool:
    """Add an empty chain of another program, and jumps to it."""
    for table, base in (("nat", "PREROUTING"), ("filter", "FORWARD"), ("filter", "INPUT")):
        saved.insert(saved.find(table, base)[0], f"-A {base} -j OTHER-CHAIN")
    saved.declare("nat", "OTHER-CHAIN")
    saved.declare("filter", "OTHER-CHAIN")
    return True


def _options_first(saved: IptablesSave, _: Random) -> bool:
    """Order options like iptables-save: the header first, comments after other matches."""

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

    saved.edit_lines(other)
    return True


def _multiport(saved: IptablesSave, _: Random) -> bool:
    """Match ports with multiport."""
    saved.edit_lines(
        lambda line: re.sub(r"-m (tcp|udp|sctp) -p \1 (.*?)--dport (\d+)", r"-p \1 \2-m multiport --dports \3", line)
    )
    return True


def _ports_as_ranges(saved: IptablesSave, _: Random) -> bool:
    saved.edit_lines(lambda line: re.sub(r"--dport (\d+)\b", r"--dport \1:\1", line))
    return True


def _numeric_protocols(saved: IptablesSave, _: Random) -> bool:
    """Write protocols as numbers."""
    saved.edit_lines(lambda line: line.replace("-m tcp -p tcp", "-p 6 -m tcp").replace("-m udp -p udp", "-p 17 -m udp"))
    return True


def _marks_as_xmark(saved: IptablesSave, _: Random) -> bool:
    """Write marks with --set-xmark, like iptables-save."""
    bit = "0x00004000"
    saved.edit_lines(lambda line: line.replace(f"--or-mark {bit}", "--set-xmark 0x4000/0x4000"))
    saved.edit_lines(lambda line: line.replace(f"--xor-mark {bit}", "--set-xmark 0x4000/0x0"))
    saved.edit_lines(lambda line: line.replace(f"--mark {bit}/{bit}", "--mark 0x4000/0x4000"))
    return True


def _networks_as_ranges(saved: IptablesSave, _: Random) -> bool:
    """Write source ranges with iprange."""
    found = RANGES(saved)
    for place in found:
        network = ip_network(place.text.partition(" -s ")[2].split()[0])
        span = f" -m iprange --src-range {network[0]}-{network[-1]}"
        saved.replace(place, re.sub(r" -s \S+", span, place.text))
    return bool(found)


def _range_halved(saved: IptablesSave, _: Random) -> bool:
    """Split source ranges into two halves."""
    found = RANGES(saved)
    for place in reversed(found):
        network = ip_network(place.text.partition(" -s ")[2].split()[0])
        low, high = network.subnets()
        saved.append(place, re.sub(r" -s \S+", f" -s {high}", place.text))
        saved.replace(place, re.sub(r" -s \S+", f" -s {low}", place.text))
    return bool(found)


def _probabilities_exact(saved: IptablesSave, _: Random) -> bool:
    """Round probabilities like the kernel, to multiples of 2**-31."""

    def stepped(found: re.Match[str]) -> str:
        return f"--probability {round(float(found[1]) * 2**31) / 2**31:.11f}"

    saved.edit_lines(lambda line: re.sub(r"--probability (\S+)", stepped, line))
    return bool(RANDOM(saved))


def _shuffled(saved: IptablesSave, _: Random) -> bool:
    """Change the order of Services; no two match the same packets."""
    for chain in ("KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES"):
        for table in ("nat", "filter"):
            found = saved.find(table, chain, r"-d \S+ --dport")
            for one, other in zip(found, found[::-1], strict=True):
                if one.position < other.position:
                    saved.swap(one, other)
    return True


Rewriting = Callable[[IptablesSave, Random], bool]

REWRITES: tuple[Rewrite[IptablesSave], ...] = (
    Rewrite("chains renamed", "consistently", _renamed),
    Rewrite("endpoints reordered", "with right probabilities", _reordered),
    Rewrite("rule split", "into a jump to a chain of its own", _split),
    Rewrite("chain inlined", "of an endpoint", _inlined),
    Rewrite("Services reordered", "no two of them match the same packets", _shuffled),
    Rewrite("counters", "as iptables-save -c prints them", _counted),
    Rewrite("comments", "where there were none", _commented),
    Rewrite("unreachable rules", "after one that ends", _unreachable),
    Rewrite("duplicate jump", "from both built-in chains", _jumped_twice),
    Rewrite("docker's chains", "in addition", _with_docker_rules),
    Rewrite("a CNI's chains", "in addition", _with_cni_rules),
    Rewrite("firewalld's tables", "in addition", _with_firewalld_rules),
    Rewrite("an empty chain", "that is jumped to", _with_jumps_to_empty_chain),
    Rewrite("order of options", "as iptables-save has it", _options_first),
    Rewrite("multiport", "for single ports", _multiport),
    Rewrite("ports as ranges", "of one", _ports_as_ranges),
    Rewrite("protocols as numbers", "6 and 17", _numeric_protocols),
    Rewrite("marks as xmark", "as iptables-save has them", _marks_as_xmark),
    Rewrite("networks as ranges", "by iprange", _networks_as_ranges),
    Rewrite("networks halved", "each in two rules", _range_halved),
    Rewrite("probabilities rounded", "as the kernel does", _probabilities_exact),
)
