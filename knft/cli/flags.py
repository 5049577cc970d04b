"""Flags that several commands share, and flags of single backends. Flags of kube-proxy keep their names."""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

import click
from click.core import ParameterSource

from knft.cli.go_flags import complete_value
from knft.configuration.table import FLAGS, MASQUERADE_BIT_RANGE, help_text
from knft.detect_local import DETECT_LOCAL_MODES
from knft.errors import UsageError

BACKENDS = ("nftables", "iptables", "ipvs")
ONLY_NFTABLES, ONLY_IPTABLES, ONLY_IPVS, KUBE_PROXY_MODES = (BACKENDS[:1], BACKENDS[1:2], BACKENDS[2:], BACKENDS[1:])

Command = Callable[..., Any]

file_option = partial(click.option, metavar="FILE", shell_complete=complete_value)
"""Make a flag that takes the name of a file; shells complete it."""


class BackendOption(click.Option):
    """A flag that only some backends have."""

    def __init__(
        self,
        *args: Any,  # noqa: ANN401 - click's own
        backends: tuple[str, ...],
        is_sync_only: bool = False,
        **settings: Any,  # noqa: ANN401
    ) -> None:
        """Make a flag of ``backends``, which --help lists; ``is_sync_only`` flags do not apply to --cleanup."""
        super().__init__(*args, shell_complete=complete_value, **settings)
        self.backends, self.is_sync_only = backends, is_sync_only
        self.help = f"{self.help}  [{', '.join(backends)}]"


def _backend_option(backends: tuple[str, ...], *names: str, **settings: Any) -> Callable[[Command], Command]:  # noqa: ANN401
    return click.option(*names, cls=BackendOption, backends=backends, **settings)


def reject_flags_of_other_backends(context: click.Context, backend: str) -> None:
    """Raise UsageError for a given flag of another backend, or for a sync's flag given with --cleanup."""
    for option in context.command.params:
        if not isinstance(option, BackendOption) or not _is_given(context, option):
            continue
        if backend not in option.backends:
            backends = " or ".join(option.backends)
            msg = f"{option.opts[0]} cannot be used with --backend {backend}; use {backends}"
            raise UsageError(msg)
        if option.is_sync_only and context.params["cleanup"]:
            msg = f"{option.opts[0]} cannot be used with --cleanup"
            raise UsageError(msg)


def _is_given(context: click.Context, option: click.Parameter) -> bool:
    source = None if option.name is None else context.get_parameter_source(option.name)
    return source is ParameterSource.COMMANDLINE


_NODEPORT_ADDRESSES = (
    "Local addresses that accept NodePorts: primary (default), all, or CIDRs. "
    "For kube-proxy's rules in mode iptables or ipvs the default is all; `render` accepts localhost for them too."
)

_NODE_FLAGS = (
    click.option("--node-ip", multiple=True, metavar="IP", help=help_text("--node-ip")),
    click.option("--detect-local-mode", default=FLAGS["--detect-local-mode"].default, show_default=True,
                 type=click.Choice(DETECT_LOCAL_MODES), help=help_text("--detect-local-mode")),
    click.option("--pod-bridge-interface", default="", metavar="NAME", help=help_text("--pod-bridge-interface")),
    click.option("--pod-interface-name-prefix", default="", metavar="PREFIX",
                 help=help_text("--pod-interface-name-prefix")),
    click.option("--cluster-cidr", multiple=True, metavar="CIDR", help=help_text("--cluster-cidr")),
    click.option("--service-cidr", multiple=True, metavar="CIDR", help=help_text("--service-cidr")),
    click.option("--masquerade-all", is_flag=True, help=help_text("--masquerade-all")),
    click.option("--masquerade-bit", type=click.IntRange(*MASQUERADE_BIT_RANGE), metavar="BIT",
                 default=FLAGS["--masquerade-bit"].default, show_default=True, help=help_text("--masquerade-bit")),
    click.option("--drop-invalid-packets", is_flag=True, help=help_text("--drop-invalid-packets")),
    click.option("--nodeport-addresses", multiple=True, metavar="primary|all|CIDR", help=_NODEPORT_ADDRESSES),
)  # fmt: skip


_SYNC_FLAGS = (
    _backend_option(ONLY_NFTABLES, "--declarations", is_flag=True,
                    help="Print only the declarations of the table, its sets and maps, as nft text."),
    _backend_option(KUBE_PROXY_MODES, "--part", metavar="NAME",
                    help="Print one part, such as iptables-restore or sysctls; a wrong name lists the valid ones."),
    _backend_option(KUBE_PROXY_MODES, "--before", multiple=True, metavar="PATH", is_sync_only=True,
                    help="Manifests of the previous sync: print the sync that follows it."),
    _backend_option(KUBE_PROXY_MODES, "--cleanup", is_flag=True,
                    help="Print the cleanup of the mode instead of a sync."),
    _backend_option(ONLY_IPTABLES, "--changed", multiple=True, metavar="NAMESPACE/NAME", is_sync_only=True,
                    help="Print a partial sync of these Services."),
    _backend_option(ONLY_IPTABLES, "--existing", metavar="FILE",
                    help="Output of iptables-save; its stale chains are deleted."),
    _backend_option(ONLY_IPVS, "--existing-ipvs", metavar="FILE", is_sync_only=True,
                    help="Existing virtual servers: output of ipvsadm -Sn, of -Ln (with connection counts), or both."),
    _backend_option(ONLY_IPVS, "--existing-addresses", metavar="FILE", is_sync_only=True,
                    help="Addresses of kube-ipvs0: one per line, or output of ip address show."),
    _backend_option(ONLY_IPVS, "--ipvs-exclude-cidrs", multiple=True, metavar="CIDR",
                    help="Do not change virtual servers in these networks."),
    _backend_option(ONLY_IPVS, "--ipvs-strict-arp", is_flag=True, help="Set arp_ignore to 1 and arp_announce to 2."),
    _backend_option(ONLY_IPVS, "--ipvs-tcp-timeout", default="0s", metavar="DURATION",
                    help="Timeout of idle TCP connections; 0 leaves it unchanged."),
    _backend_option(ONLY_IPVS, "--ipvs-tcpfin-timeout", default="0s", metavar="DURATION",
                    help="Timeout of TCP connections after FIN; 0 leaves it unchanged."),
    _backend_option(ONLY_IPVS, "--ipvs-udp-timeout", default="0s", metavar="DURATION",
                    help="Timeout of UDP flows; 0 leaves it unchanged."),
    _backend_option(ONLY_IPVS, "--kernel", default="6.1", show_default=True, metavar="VERSION",
                    help="Kernel version of the node; one sysctl depends on it."),
)  # fmt: skip
"""Flags of commands that print a sync."""

_RULE_FLAGS = (
    _backend_option(KUBE_PROXY_MODES, "--local-address", multiple=True, metavar="IP",
                    help="Address of the node, in addition to those of the Node object."),
    _backend_option(KUBE_PROXY_MODES, "--random-fully/--no-random-fully", default=True, show_default=True,
                    help="Whether iptables supports random source ports for masquerading."),
    _backend_option(ONLY_IPTABLES, "--iptables-localhost-nodeports/--no-iptables-localhost-nodeports", default=True,
                    show_default=True, help="Whether NodePorts are served on loopback addresses."),
    _backend_option(ONLY_IPTABLES, "--conntrack-tcp-be-liberal", is_flag=True,
                    help="Render rules for a node with nf_conntrack_tcp_be_liberal=1: no rule drops INVALID packets."),
    _backend_option(ONLY_IPTABLES, "--nfacct/--no-nfacct", default=True, show_default=True,
                    help="Whether the kernel supports nfacct counters."),
    _backend_option(ONLY_IPVS, "--vintage", default="newest", show_default=True, metavar="VERSION",
                    help="Version of kube-proxy's rules: newest, or that of a document, from old to new: "
                         "document-003, document-002, document-004. Endpoints are selected as in the newest version."),
    _backend_option(ONLY_IPVS, "--ipvs-scheduler", default="rr", show_default=True, metavar="NAME",
                    help="IPVS scheduler of the virtual servers."),
)  # fmt: skip
"""Flags that the rules depend on."""


_CAPTURE_FLAGS = (
    file_option("--iptables-save", help="Output of iptables-save on a node."),
    file_option("--ip6tables-save", help="Output of ip6tables-save on a node."),
    file_option("--ipset-save", help="Output of ipset save on that node, if rules use ipsets."),
    file_option("--ipvsadm-save", help="Output of ipvsadm -Sn on that node, for mode ipvs."),
    file_option("--nft-json", help="Output of nft -j list ruleset on a node."),
)
"""Flags that name captured rule sets."""


_CONFIG_FLAG = file_option("--config", help="kube-proxy's configuration file, with which knft would run.")

_PACKET_FLAGS = (
    click.option("--from-port", type=click.IntRange(0, 65535), metavar="PORT",
                 help="Source port of the packet; default: all that rules distinguish."),
    click.option("--in-interface", metavar="IF",
                 help="Input interface of the packet; default: all that rules distinguish."),
    click.option("--out-interface", metavar="IF",
                 help="Output interface of the packet; default: all that rules distinguish."),
    click.option("--state", type=click.Choice(["new", "established", "invalid"]), default="new", show_default=True,
                 help="State of the packet in conntrack; new: the first packet of a connection."),
    click.option("--remembered", metavar="IP:PORT",
                 help="Endpoint in the client's affinity entry, from an earlier connection."),
    click.option("--remembered-through", metavar="ADDR:PORT[/PROTOCOL]",
                 help="Destination of that earlier connection; default: that of --to."),
    click.option("--node-has", multiple=True, metavar="IP",
                 help="Further address of the node, for which its rules are not rendered."),
    click.option("--unbound", is_flag=True,
                 help="The process of the node that sends the packet lets the kernel select the source. In mode ipvs "
                      "that is the destination, if kube-ipvs0 has it."),
)  # fmt: skip
"""Flags that describe a packet, besides --from and --to."""


def packet_flags(command: Command) -> Command:
    """Add the flags that describe a packet, besides --from and --to."""
    return _with(command, _PACKET_FLAGS)


def node_flags(command: Command, *, needs_node: bool = True, node_note: str = "required with -f") -> Command:
    """Add the flags that describe node and cluster to a command; ``node_note`` tells when --node is needed."""
    description = "Name of this node, as in nodeName." + ("" if needs_node else f"  [{node_note}]")
    node = click.option("--node", "node", required=needs_node, metavar="NAME", help=description)
    return _with(command, (node, *_NODE_FLAGS))


def rule_set_flags(command: Command) -> Command:
    """Add the flags of captures, of rendered rules and of the node to a command that reads rule sets."""
    return node_flags(_with(command, (*_CAPTURE_FLAGS, _CONFIG_FLAG, *_RULE_FLAGS)), needs_node=False)


_REQUIRES_MANIFESTS = "requires -f"
_FLAGS_OF_ANY_RULES = frozenset({"node", "node_ip", "local_address"})
"""Flags that describe the node; they apply to rendered, captured and live rules."""


def reject_node_flags(
    context: click.Context, reason: str = _REQUIRES_MANIFESTS, *, except_for: Collection[str] = ()
) -> None:
    """Raise UsageError with a reason for a given flag that describes node and cluster."""
    _reject(context, _flag_names(lambda command: node_flags(command, needs_node=False)).difference(except_for), reason)


def reject_render_flags(context: click.Context) -> None:
    """Raise UsageError for a given flag that only applies to rules rendered from manifests."""
    flags_of_rendered_rules = _flag_names(lambda command: node_flags(rule_flags(command), needs_node=False))
    _reject(context, {*flags_of_rendered_rules, "backend", "config"} - _FLAGS_OF_ANY_RULES)


def _reject(context: click.Context, flags: Collection[str], reason: str = _REQUIRES_MANIFESTS) -> None:
    for option in context.command.params:
        if option.name in flags and _is_given(context, option):
            msg = f"{option.opts[0]} {reason}"
            raise UsageError(msg)


_FLAGS_WITH_FILE = frozenset({"node", "node_ip", "service_cidr", "drop_invalid_packets"})
"""Flags that apply in addition to a configuration file, because it has no field for them."""


def reject_flags_of_configuration(context: click.Context) -> None:
    """Raise UsageError for a given flag about the node that a configuration file replaces."""
    replaced = _flag_names(lambda command: node_flags(command, needs_node=False)) - _FLAGS_WITH_FILE
    for option in context.command.params:
        if option.name in replaced and _is_given(context, option):
            msg = f"{option.opts[0]} cannot be used with --config; set the field in it"
            raise UsageError(msg)


_KUBE_PROXY_SOURCE_FLAGS = ("live", "iptables_save", "ip6tables_save", "nft_json")


def reject_conflicting_sides(context: click.Context) -> None:
    """Raise UsageError if --against is given with --live or a capture."""
    given = {option.name: option for option in context.command.params if _is_given(context, option)}
    other = next((given[name] for name in _KUBE_PROXY_SOURCE_FLAGS if name in given), None)
    if "against" in given and other is not None:
        msg = f"--against cannot be used with {other.opts[0]}; leave out one of them"
        raise UsageError(msg)


def _flag_names(flags: Callable[[Command], Command]) -> frozenset[str]:
    return frozenset(_flag_defaults(flags))


def backend_flags(command: Command) -> Command:
    """Add the flags of single backends to a command."""
    return _with(command, (*_SYNC_FLAGS, *_RULE_FLAGS))


def rule_flags(command: Command) -> Command:
    """Add the flags that rules depend on to a command."""
    return _with(command, _RULE_FLAGS)


def _with(command: Command, options: Sequence[Callable[[Command], Command]]) -> Command:
    for option in reversed(options):
        command = option(command)
    return command


def sync_flag_defaults() -> dict[str, Any]:
    """Return the default values of the flags of single backends."""
    return _flag_defaults(backend_flags)


def _flag_defaults(flags: Callable[[Command], Command]) -> dict[str, Any]:
    @click.command
    @flags
    def no_command() -> None:
        """Hold the flags."""

    return no_command.make_context("no-command", []).params
