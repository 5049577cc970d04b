"""The rule sets of a node, as its tools print them, and the node's local addresses, for the interpreters."""

from msgspec import Struct

from knft.comparison.captures import SAVE_PROGRAMS, Capture, read_capture
from knft.families import IpVersion
from knft.interpret.rules import RuleSet
from knft.kernel.addresses import local_addresses
from tests.support.lab.namespace import Namespace

DEVICE = "kube-ipvs0"


class Captured(Struct, frozen=True):
    """The rule sets of both families; ``node_addresses`` excludes the addresses of kube-proxy's device."""

    rule_sets: dict[IpVersion, RuleSet]
    node_addresses: tuple[str, ...]


def capture_nftables(node: Namespace) -> Captured:
    """Read the output of ``nft``."""
    listed = node.run(["nft", "-j", "list", "ruleset"]).stdout
    return Captured(read_capture(Capture(nftables=listed.encode())), _local(node))


def capture_iptables(node: Namespace) -> Captured:
    """Read the output of ``iptables-save`` and ``ip6tables-save``."""
    return Captured(read_capture(Capture(_saved(node))), _local(node))


def capture_ipvs(node: Namespace) -> Captured:
    """Read the output of the same tools, of ``ipset`` and ``ipvsadm``, and the addresses of kube-proxy's device."""
    own, bound = _addresses(node)
    sets = node.run(["ipset", "save"]).stdout
    servers = node.run(["ipvsadm", "-Sn"]).stdout
    return Captured(read_capture(Capture(_saved(node), sets, servers, ipvs_addresses=bound)), own)


def node_addresses(node: Namespace) -> tuple[str, ...]:
    """Return the addresses of all the node's interfaces except kube-proxy's device."""
    return _addresses(node)[0]


def _local(node: Namespace) -> tuple[str, ...]:
    """Return the addresses of a node without kube-proxy's device. Debian 13's root directory has no ``ip``."""
    with node.entered():
        return tuple(local_addresses())


def _saved(node: Namespace) -> dict[IpVersion, str]:
    return {version: node.run([program]).stdout for version, program in SAVE_PROGRAMS.items()}


def _addresses(node: Namespace) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the node's own addresses, and the networks of kube-proxy's device."""
    fields = [line.split() for line in node.run(["ip", "-o", "address", "show"]).stdout.splitlines()]
    own = tuple(words[3].partition("/")[0] for words in fields if words[1] != DEVICE)
    return own, tuple(words[3] for words in fields if words[1] == DEVICE)
