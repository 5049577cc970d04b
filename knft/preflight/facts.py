"""Facts: what ``knft preflight`` has read on a machine, and the objects that it was given."""

from collections.abc import Mapping

from msgspec import Struct

from knft.config import Config
from knft.explain.cluster import FamilyObjects
from knft.families import Family
from knft.interpret.compare.report import Report
from knft.kernel.base_chains import BaseChain
from knft.kernel.connections import Connection
from knft.kernel.mark_routes import MarkRoute
from knft.kernel.sysctls import DifferingValue
from knft.leftovers.saved import SavedRules
from knft.proxy_mode import Mode


class Unread(Struct, frozen=True):
    """Why something was not read, and what to do.

    ``failed`` tells that the kernel, a program or the API server refused a request, not that there was no input.
    """

    reason: str
    remedy: str = "correct the cause, and run the command again"
    failed: bool = True


class HostFacts(Struct, frozen=True):
    """The programs and the kernel.

    ``unsupported`` is the message of the probe of ``knft run``, empty if the kernel has all features. ``nft_version``
    is the output of ``nft --version``, None if there is no such program; ``is_image`` tells that it is the one in
    knft's image and not the host's.
    """

    kernel: str
    unsupported: str | Unread
    libnftables: str | Unread
    nft_version: str | Unread | None
    is_image: bool = False


class MarkUse(Struct, frozen=True):
    """A rule of an nftables table, and the bits of the packet mark that it reads or writes.

    ``bits`` is None if knft cannot tell which.
    """

    table: str
    chain: str
    bits: int | None
    text: str


class RuleFacts(Struct, frozen=True):
    """The rules of other programs: base chains, the output of each backend of iptables, and kube-proxy's by mode.

    ``saved`` maps a backend, such as iptables-nft, to its rules; it is empty if iptables is not installed. ``errors``
    are those of reading iptables, ipsets and virtual servers. ``foreign_tables`` maps nftables tables of other
    programs, such as ``inet firewall``, to the uses of the packet mark that iptables-save did not print, or to None if
    they were not to be listed.
    ``knft_tables`` are knft's own, such as ``ip knft``.
    """

    base_chains: tuple[BaseChain, ...] | Unread
    saved: Mapping[str, SavedRules]
    leftovers: Mapping[Mode, tuple[str, ...]]
    errors: tuple[str, ...]
    mark_routes: tuple[MarkRoute, ...] | Unread
    foreign_tables: Mapping[str, tuple[MarkUse, ...] | Unread | None] | Unread
    knft_tables: tuple[str, ...] | Unread = ()


class ConfigurationFacts(Struct, frozen=True):
    """The file of --config, and what ``knft run`` says about it: errors, with which it does not start, and warnings."""

    path: str
    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class ConntrackFacts(Struct, frozen=True):
    """The number of entries and its limit, None if unknown, and the sysctls that ``knft run`` would change."""

    entries: int | None
    maximum: int | None
    differing: tuple[DifferingValue, ...] = ()


class ObjectFacts(Struct, frozen=True):
    """Services and endpoints, the addresses that accept NodePorts, and the open connections, by family.

    ``node_problems`` tell that the node's name or addresses are probably mistaken. ``has_node`` tells whether its Node
    is one of the objects. ``loopback`` are the families in which knft serves NodePorts at loopback addresses.
    """

    objects: Mapping[Family, FamilyObjects]
    accepting: Mapping[Family, tuple[str, ...]]
    connections: Mapping[Family, tuple[Connection, ...]] | Unread
    node_problems: tuple[str, ...] = ()
    has_node: bool = True
    loopback: frozenset[Family] = frozenset()


class Facts(Struct, frozen=True):
    """All facts. Without objects, ``comparison`` and ``cluster`` are Unread.

    ``diff_command`` is the command that prints the comparison.
    """

    config: Config
    host: HostFacts
    rules: RuleFacts
    configuration: ConfigurationFacts | None
    conntrack: ConntrackFacts
    comparison: Report | Unread
    cluster: ObjectFacts | Unread
    diff_command: str
