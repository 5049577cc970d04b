"""Flags of several commands, and those of single backends; names are kube-proxy's where it has them."""

from collections.abc import Callable, Sequence
from typing import Any

import click
from click.core import ParameterSource

from knft.configuration.table import help_text
from knft.errors import UsageError

BACKENDS = ("nftables", "iptables", "ipvs")
NFTABLES, IPTABLES, IPVS, LEGACY = (BACKENDS[:1], BACKENDS[1:2], BACKENDS[2:], BACKENDS[1:])

Command = Callable[..., Any]


class BackendOption(click.Option):
    """An option that means something to some backends alone."""

    def __init__(
        self,
        *args: Any,  # noqa: ANN401 - click's own
        backends: tuple[str, ...],
        is_sync_only: bool = False,
        **settings: Any,  # noqa: ANN401
    ) -> None:
        """Belong to ``backends``, and say so in the help; with ``is_sync_only`` to their syncs and not their cleanups."""
        super().__init__(*args, **settings)
        self.backends, self.is_sync_only = backends, is_sync_only
        self.help = f"{self.help}  [{', '.join(backends)}]"


def _backend_option(backends: tuple[str, ...], *names: str, **settings: Any) -> Callable[[Command], Command]:  # noqa: ANN401
    return click.option(*names, cls=BackendOption, backends=backends, **settings)


def reject_flags_of_other_backends(context: click.Context, backend: str) -> None:
    """Raise UsageError where a flag was given about another backend, or in a cleanup one about a sync."""
    for option in context.command.params:
        if not isinstance(option, BackendOption) or not _is_given(context, option):
            continue
        if backend not in option.backends:
            msg = f"{option.opts[0]}: it means nothing to --backend {backend}, only to {' and '.join(option.backends)}"
            raise UsageError(msg)
        if option.is_sync_only and context.params["cleanup"]:
            msg = f"{option.opts[0]}: it means nothing to --cleanup"
            raise UsageError(msg)


def _is_given(context: click.Context, option: click.Parameter) -> bool:
    source = None if option.name is None else context.get_parameter_source(option.name)
    return source is ParameterSource.COMMANDLINE


_NODEPORT_ADDRESSES = (
    "Which local addresses accept NodePorts: primary (default), all, or CIDRs. "
    "With iptables and ipvs all is the default, and localhost a word too."
)

_NODE_FLAGS = (
    click.option("--node-ip", multiple=True, metavar="IP", help=help_text("--node-ip")),
    click.option("--detect-local-mode", default="ClusterCIDR", show_default=True,
                 type=click.Choice(["ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix"]),
                 help="How traffic of this cluster's pods is told from other traffic."),
    click.option("--pod-bridge-interface", default="", metavar="NAME", help=help_text("--pod-bridge-interface")),
    click.option("--pod-interface-name-prefix", default="", metavar="PREFIX",
                 help=help_text("--pod-interface-name-prefix")),
    click.option("--cluster-cidr", multiple=True, metavar="CIDR",
                 help=help_text("--cluster-cidr")),
    click.option("--service-cidr", multiple=True, metavar="CIDR",
                 help=help_text("--service-cidr")),
    click.option("--masquerade-all", is_flag=True, help=help_text("--masquerade-all")),
    click.option("--masquerade-bit", type=click.IntRange(0, 31), default=14, show_default=True, metavar="BIT",
                 help="The bit of the packet mark that asks for masquerading."),
    click.option("--nodeport-addresses", multiple=True, metavar="WORD|CIDR", help=_NODEPORT_ADDRESSES),
)  # fmt: skip


_SYNC_FLAGS = (
    _backend_option(NFTABLES, "--declarations", is_flag=True, help="Print the declarations alone, as nft text."),
    _backend_option(LEGACY, "--part", metavar="NAME", help="Print what one tool reads, such as iptables-restore or ipset."),
    _backend_option(LEGACY, "--before", multiple=True, metavar="PATH", is_sync_only=True,
                 help="The manifests of the sync before: what differs is what this one is about."),
    _backend_option(LEGACY, "--cleanup", is_flag=True, help="Print what removes the mode's leftovers, not a sync."),
    _backend_option(IPTABLES, "--changed", multiple=True, metavar="NAMESPACE/NAME", is_sync_only=True,
                 help="Print a partial sync, of these Services."),
    _backend_option(IPTABLES, "--existing", metavar="FILE", help="What iptables-save printed; stale chains are deleted."),
    _backend_option(IPVS, "--existing-ipvs", metavar="FILE", is_sync_only=True,
                 help="The virtual servers that are there: ipvsadm -Sn, or -Ln, which counts connections, or both."),
    _backend_option(IPVS, "--existing-addresses", metavar="FILE", is_sync_only=True,
                 help="The addresses on kube-ipvs0: a line each, or as ip address show prints them."),
    _backend_option(IPVS, "--ipvs-exclude-cidrs", multiple=True, metavar="CIDR",
                 help="Virtual servers in these networks are left alone."),
    _backend_option(IPVS, "--ipvs-strict-arp", is_flag=True, help="Set arp_ignore to 1 and arp_announce to 2."),
    _backend_option(IPVS, "--ipvs-tcp-timeout", default="0s", metavar="DURATION", help="Idle TCP connections; 0: as it is."),
    _backend_option(IPVS, "--ipvs-tcpfin-timeout", default="0s", metavar="DURATION",
                 help="TCP connections after FIN; 0: as it is."),
    _backend_option(IPVS, "--ipvs-udp-timeout", default="0s", metavar="DURATION", help="UDP flows; 0: as it is."),
    _backend_option(IPVS, "--kernel", default="6.1", show_default=True, metavar="VERSION",
                 help="The node's kernel, which decides on one sysctl."),
)  # fmt: skip
"""What only those ask for who want to see or to carry out a sync."""

_RULE_FLAGS = (
    _backend_option(LEGACY, "--local-address", multiple=True, metavar="IP",
                 help="An address that the machine has, beside those of the Node object."),
    _backend_option(LEGACY, "--random-fully/--no-random-fully", default=True, show_default=True,
                 help="Whether iptables can choose masqueraded ports at random."),
    _backend_option(IPTABLES, "--iptables-localhost-nodeports/--no-iptables-localhost-nodeports", default=True, show_default=True,
                 help="Whether NodePorts answer on loopback addresses."),
    _backend_option(IPTABLES, "--conntrack-tcp-be-liberal", is_flag=True,
                 help="Conntrack takes packets outside the window as valid: no rule drops INVALID ones."),
    _backend_option(IPTABLES, "--nfacct/--no-nfacct", default=True, show_default=True,
                 help="Whether the kernel has nfacct's counters."),
    _backend_option(IPVS, "--vintage", default="newest", show_default=True, metavar="VERSION",
                 help="Which kube-proxy's rules are meant: 1.23, 1.26, 1.29 or newest; endpoints are chosen as the "
                      "newest does."),
    _backend_option(IPVS, "--ipvs-scheduler", default="rr", show_default=True, metavar="NAME",
                 help="How connections are spread."),
)  # fmt: skip
"""What the rules themselves depend on."""


_CAPTURE_FLAGS = (
    click.option("--iptables-save", metavar="FILE", help="What iptables-save printed on a node."),
    click.option("--ip6tables-save", metavar="FILE", help="The same of ip6tables-save."),
    click.option("--ipset-save", metavar="FILE", help="What ipset save printed there, for rules that name sets."),
    click.option("--ipvsadm-save", metavar="FILE", help="What ipvsadm -Sn printed there, in mode ipvs."),
    click.option("--nft-json", metavar="FILE", help="What nft -j list ruleset printed on a node."),
)
"""Rule sets that somebody has captured."""


def node_flags(command: Command, *, needs_node: bool = True) -> Command:
    """Give a command the flags that say what node and what cluster this is, to knft and to kube-proxy's modes."""
    words = "Name of this node, as in nodeName." + ("" if needs_node else "  [needed with -f]")
    node = click.option("--node", "node", required=needs_node, metavar="NAME", help=words)
    return _with(command, (node, *_NODE_FLAGS))


def rule_set_flags(command: Command) -> Command:
    """Give a command that reads rule sets, rendered, captured or in force, the flags that say which, and of what."""
    return node_flags(_with(command, (*_CAPTURE_FLAGS, *_RULE_FLAGS)), needs_node=False)


_FLAGS_OF_ANY_RULES = frozenset({"node", "node_ip", "local_address"})
"""What is said of the node itself, wherever its rules come from."""


def reject_render_flags(context: click.Context) -> None:
    """Raise UsageError where a flag was given that shapes rendered rules, and no manifests were."""
    rendering = _flag_names(lambda command: node_flags(rule_flags(command), needs_node=False))
    shaping = {*rendering, "backend"} - _FLAGS_OF_ANY_RULES
    for option in context.command.params:
        if option.name in shaping and _is_given(context, option):
            msg = f"{option.opts[0]}: it means nothing without -f"
            raise UsageError(msg)


_OTHER_SIDE_FLAGS = ("live", "iptables_save", "ip6tables_save", "nft_json")


def reject_conflicting_sides(context: click.Context) -> None:
    """Raise UsageError where a mode was named to render, and also what is in force or was captured."""
    given = {option.name: option for option in context.command.params if _is_given(context, option)}
    other = next((given[name] for name in _OTHER_SIDE_FLAGS if name in given), None)
    if "against" in given and other is not None:
        msg = f"--against: it says what to render, and {other.opts[0]} names other rules; leave one of the two out"
        raise UsageError(msg)


def _flag_names(flags: Callable[[Command], Command]) -> frozenset[str]:
    return frozenset(_flag_defaults(flags))


def backend_flags(command: Command) -> Command:
    """Give a command the flags that only some backends know."""
    return _with(command, (*_SYNC_FLAGS, *_RULE_FLAGS))


def rule_flags(command: Command) -> Command:
    """Give a command those of them that the rules depend on."""
    return _with(command, _RULE_FLAGS)


def _with(command: Command, options: Sequence[Callable[[Command], Command]]) -> Command:
    for option in reversed(options):
        command = option(command)
    return command


def sync_flag_defaults() -> dict[str, Any]:
    """Return the flags of backends that ``rule_flags`` leaves out, as if nobody had given them."""
    return _flag_defaults(backend_flags)


def _flag_defaults(flags: Callable[[Command], Command]) -> dict[str, Any]:
    @click.command
    @flags
    def nothing() -> None:
        """Carry the options."""

    return nothing.make_context("nothing", []).params
