"""Compares kube-proxy's iptables rules with those of ``knft render --backend iptables``, loaded by the real tools."""

import re
from operator import itemgetter
from pathlib import Path

from tests.parity.nodes import ParityNode
from tests.parity.random_cluster import Settings
from tests.support.iptables_programs import without_nfacct
from tests.support.knft_command import KNFT, NODE_FLAG
from tests.support.lab.namespace import Namespace
from tests.support.packets.captured import node_addresses

_FAMILIES = {"ipv4": "iptables-save", "ipv6": "ip6tables-save"}
# iptables-save writes two spaces before the name of a counter.
_NFACCT = re.compile(r" -m nfacct --nfacct-name +\S+")
_TARGET = re.compile(r" -[jg] (KUBE-\S+)")
_BY_SERVICE = ("KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES", "KUBE-NODEPORTS", "KUBE-PROXY-FIREWALL")
"""Chains with rules of all Services; kube-proxy writes the Services in the order of a map."""
_SERVICE_PORT = re.compile(r'--comment "?([^ "]+/[^ "]+)')

Chains = dict[str, list[str]]
"""The rules of each chain, by table and name."""


def compare_rules(kube_proxy: ParityNode, objects: Path, settings: Settings) -> list[str]:
    """Return the chains that differ, with the first rules that only one side has."""
    problems: list[str] = []
    for family, program in _FAMILIES.items():
        theirs = chains(kube_proxy.namespace.run([program]).stdout)
        ours = chains(_rendered(kube_proxy, objects, settings, family, program))
        problems += [
            f"{family} {name}: {_difference(theirs.get(name), ours.get(name))}"
            for name in sorted(theirs.keys() | ours)
            if theirs.get(name) != ours.get(name)
        ]
    return problems


def _rendered(kube_proxy: ParityNode, objects: Path, settings: Settings, family: str, program: str) -> str:
    """Load the rendered script in an empty namespace; return what the tool prints then."""
    own = [f"--local-address={address}" for address in node_addresses(kube_proxy.namespace)]
    # kube-proxy counts with nfacct if the kernel has it, by netlink; the script needs the program nfacct for that.
    counters = "--nfacct" if "nfacct" in kube_proxy.namespace.run([program]).stdout else "--no-nfacct"
    flags = ["--backend", "iptables", "--family", family, counters, *settings.flags, *own]
    script = kube_proxy.namespace.run([*KNFT, "render", "-f", str(objects), *NODE_FLAG, *flags]).stdout
    namespace = Namespace.create("rendered")
    try:
        namespace.run(["sh", "-e"], stdin=_without_program_nfacct(script))
        return namespace.run([program]).stdout
    finally:
        namespace.close()


def _without_program_nfacct(script: str) -> str:
    """Return the script without the program: it is not checked for, makes no counters, and no rule uses them."""
    lines = (line for line in script.splitlines(keepends=True) if not line.startswith("nfacct "))
    checked = (line.replace(" nfacct", "") if line.startswith("for program in ") else line for line in lines)
    return without_nfacct("".join(checked))


def chains(saved: str) -> Chains:
    """Return the chains that others jump to, except empty built-in ones; the order of Services does not count."""
    found: Chains = {}
    table = ""
    for line in saved.splitlines():
        if line.startswith("*"):
            table = line[1:]
        elif line.startswith(":"):
            found[f"{table} {line[1:].split()[0]}"] = []
        elif line.startswith("-A "):
            _, chain, rule = line.split(" ", 2)
            found[f"{table} {chain}"].append(_NFACCT.sub("", rule))
    used = _reachable(found)
    return {
        name: _ordered(rules) if name.partition(" ")[2] in _BY_SERVICE else rules
        for name, rules in found.items()
        if name in used and (rules or "KUBE-" in name)
    }


def _ordered(rules: list[str]) -> list[str]:
    """Return the rules of each Service port in their order, sorted by the port, which their comment names.

    Rules of no Service port stay before or after the others: the jump to KUBE-NODEPORTS has to be the last rule.
    """
    ports = [match[1] if (match := _SERVICE_PORT.search(rule)) else "" for rule in rules]
    end = max((number for number, port in enumerate(ports, 1) if port), default=0)
    return [rule for _, rule in sorted(zip(ports[:end], rules[:end], strict=True), key=itemgetter(0))] + rules[end:]


def _reachable(chains: Chains) -> set[str]:
    """Return the chains that built-in chains lead to: kube-proxy removes stale ones later."""
    found = {name for name in chains if "KUBE-" not in name}
    waiting = list(found)
    while waiting:
        table, _, _ = (name := waiting.pop()).partition(" ")
        targets = {f"{table} {target}" for rule in chains[name] for target in _TARGET.findall(f" {rule}")}
        waiting += targets - found
        found |= targets
    return found


def _difference(theirs: list[str] | None, ours: list[str] | None) -> str:
    if theirs is None or ours is None:
        return f"only {'knft renders' if theirs is None else 'kube-proxy has'} this chain: {theirs or ours}"
    only_theirs = [rule for rule in theirs if rule not in ours]
    only_ours = [rule for rule in ours if rule not in theirs]
    if not only_theirs and not only_ours:
        return "the order differs"
    return f"kube-proxy {only_theirs[:3]} | knft {only_ours[:3]}"
