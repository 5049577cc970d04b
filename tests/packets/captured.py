"""What is in force on a node, as the tools print it there, read by the interpreters; and the node's own addresses."""

from msgspec import Struct

from knft.cli.captured import SAVE_PROGRAMS, Texts, rule_sets
from knft.interpret.rules import IpVersion, RuleSet
from knft.kernel.addresses import local_addresses
from tests.support.lab.namespace import Namespace

DEVICE = "kube-ipvs0"


class Captured(Struct, frozen=True):
    """Both families' rule sets; ``own`` are the addresses of all interfaces but kube-proxy's."""

    rules: dict[IpVersion, RuleSet]
    own: tuple[str, ...]


def of_nftables(node: Namespace) -> Captured:
    """Read what ``nft`` lists."""
    listed = node.run(["nft", "-j", "list", "ruleset"]).stdout
    return Captured(rule_sets(Texts(nftables=listed.encode())), _local(node))


def of_iptables(node: Namespace) -> Captured:
    """Read what ``iptables-save`` and ``ip6tables-save`` print."""
    return Captured(rule_sets(Texts(_saved(node))), _local(node))


def of_ipvs(node: Namespace) -> Captured:
    """Read what these print, ``ipset``, ``ipvsadm``, and which addresses are bound to kube-proxy's device."""
    own, bound = _addresses(node)
    sets = node.run(["ipset", "save"]).stdout
    servers = node.run(["ipvsadm", "-Sn"]).stdout
    return Captured(rule_sets(Texts(_saved(node), sets, servers, bound=bound)), own)


def own_addresses(node: Namespace) -> tuple[str, ...]:
    """Return the addresses of all the node's interfaces, but kube-proxy's own."""
    return _addresses(node)[0]


def _local(node: Namespace) -> tuple[str, ...]:
    """Return the node's addresses where there is no device of kube-proxy's; without ``ip``, which is not everywhere."""
    with node.entered():
        return tuple(local_addresses())


def _saved(node: Namespace) -> dict[IpVersion, str]:
    return {version: node.run([program]).stdout for version, program in SAVE_PROGRAMS.items()}


def _addresses(node: Namespace) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the node's own addresses, and the networks on kube-proxy's device."""
    fields = [line.split() for line in node.run(["ip", "-o", "address", "show"]).stdout.splitlines()]
    own = tuple(words[3].partition("/")[0] for words in fields if words[1] != DEVICE)
    return own, tuple(words[3] for words in fields if words[1] == DEVICE)
