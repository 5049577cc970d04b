"""The commands that find causes and problems, with their flags and help: explain, preflight and lint."""

from functools import partial
from typing import Any

import click

from knft.cli.commands.group import cli
from knft.cli.flags import (
    file_option,
    node_flags,
    reject_flags_of_configuration,
    reject_node_flags,
)


@cli.command(short_help="Explain a Service, an address, a NodePort or an endpoint.")
@click.argument("what", metavar="WHAT")
@file_option("-f", "--filename", "paths", multiple=True, metavar="PATH",
             help="Manifest, directory of manifests, or - for standard input: source of the objects.")  # fmt: skip
@click.option("--source", type=click.Choice(["daemon", "kernel"]),
              help="Source without -f: the running knft, which is the default if it answers, or this machine's "
                   "kernel.")  # fmt: skip
@click.option("--live/--no-live", default=None,
              help="Whether to compare with knft's tables in this machine's kernel; changes nothing. Default: with "
                   "the objects of the running knft.")  # fmt: skip
@click.option("--local-address", multiple=True, metavar="IP",
              help="Address of the node, in addition to those of the Node object.")  # fmt: skip
@click.option("--client", metavar="IP",
              help="Also say to which endpoints session affinity sends this client, and for how long.")  # fmt: skip
@click.option("--connections", is_flag=True,
              help="Also count the conntrack entries of this machine that lead to each endpoint.")  # fmt: skip
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True,
              help="text: for people; json: for programs, see knft/explain/explanation.schema.json.")  # fmt: skip
@partial(node_flags, needs_node=False, node_note="default: the first node of the manifests")
@click.pass_context
def explain(context: click.Context, /, **options: Any) -> None:  # noqa: ANN401 - click's values
    """Explain who gets the packets of WHAT, and why. The first line is the conclusion.

    WHAT is a Service (namespace/name, or name in namespace default; with :PORT one of its ports), an address with or
    without a port (10.96.0.10, 10.96.0.10:53/udp, [fd00::10]:80), a NodePort (:30080/tcp), or an endpoint's address.
    The default protocol is tcp.

    Without -f, the objects are those of the knft that runs in this network namespace, with its settings; the
    explanation has a reason for each endpoint that is not used, and says whether the kernel's rules agree. If no knft
    runs, its tables in this machine's kernel are read, which hold frontends, endpoints and affinity, but no reasons.
    With -f, Services and endpoints are read from manifests. To capture them, run

    \b
      kubectl get nodes,services,endpointslices,servicecidrs -A -o yaml

    The affinity entries and the connections are those of this machine's kernel, so with -f they need --live.

    Exit status 0: WHAT was found and explained. 1: the running knft does not answer, the kernel's tables cannot be
    read, or the output could not be written. 2: invalid flags or WHAT, or manifests cannot be read. 3: no Service,
    frontend or endpoint is WHAT; the output says what happens to its packets.
    """  # noqa: D301 - click keeps the lines of a paragraph that begins with \b
    if not options["paths"]:
        reject_node_flags(context)
    from knft.cli.explain import explain as explain_command  # noqa: PLC0415

    context.exit(explain_command(**options))


@cli.command(short_help="Check this node before a switch from kube-proxy.")
@file_option("-f", "--filename", "paths", multiple=True, metavar="PATH",
             help="Manifest, directory of manifests, or - for standard input: objects to compare with.")  # fmt: skip
@file_option("--kubeconfig", help="Kubeconfig of an API server to read the objects from, instead of -f.")
@file_option("--config", help="kube-proxy's configuration file, with which knft would run.")
@click.option("--foreign-tables", is_flag=True,
              help="Also list nftables tables of other programs, to look for the masquerade bit.")  # fmt: skip
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True,
              help="text: for people; json: for programs, see knft/preflight/preflight.schema.json.")  # fmt: skip
@partial(node_flags, needs_node=False)
@click.pass_context
def preflight(context: click.Context, /, **options: Any) -> None:  # noqa: ANN401 - click's values
    """Check this node before a switch from kube-proxy to knft. The first line is the verdict.

    It changes no rules. It needs CAP_NET_ADMIN, and CAP_NET_RAW to read the rules of iptables-legacy.

    Checked are the kernel, libnftables and the host's nft, base chains of other programs, kube-proxy's mode and its
    configuration (--config), conntrack, and the bit of the packet mark. nftables tables of other programs are listed
    only with --foreign-tables. With -f or --kubeconfig, the rules in the
    kernel are compared with knft's as by `knft diff --live`, and open connections with the endpoints. Each warning and
    each problem has a remedy.

    With --config, the file has the settings: of the flags about the node only --node, --node-ip, --service-cidr and
    --drop-invalid-packets can be given, and none without objects, because no check depends on them.

    To capture the objects for -f, run

    \b
      kubectl get nodes,services,endpointslices,servicecidrs -A -o yaml

    Exit status 0: the node is ready; there may be warnings. 1: there is no problem, but the kernel, a program or the
    API server refused a request, so that something could not be checked; or the output could not be written.
    2: invalid flags, manifests that cannot be read, or a missing privilege. 3: the node is not ready.
    """  # noqa: D301 - click keeps the lines of a paragraph that begins with \b
    if options["config"] is not None:
        reject_flags_of_configuration(context)
    if not options["paths"] and options["kubeconfig"] is None:
        reason = "requires -f or --kubeconfig: without objects, no check depends on it"
        reject_node_flags(context, reason, except_for=("masquerade_bit",))
    from knft.cli.preflight import preflight as preflight_command  # noqa: PLC0415

    context.exit(preflight_command(**options))


@cli.command(short_help="Find what in manifests cannot work or will surprise.")
@file_option("-f", "--filename", "paths", multiple=True, required=True, metavar="PATH",
             help="Manifest, directory of manifests, or - for standard input.")  # fmt: skip
@file_option("--against", multiple=True, metavar="PATH",
             help="Manifests before a change: also say what the change does to packets.")  # fmt: skip
@click.option("--partial", is_flag=True,
              help="With --against: -f has only changed and new objects, and the others stay.")  # fmt: skip
@click.option("--against-daemon", is_flag=True,
              help="As --against --partial, with objects and settings of the running knft, on its node.")  # fmt: skip
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True,
              help="text: for people; json: for programs, see knft/lint/report.schema.json.")  # fmt: skip
@partial(node_flags, needs_node=False, node_note="default: all Nodes of the manifests")
@click.pass_context
def lint(context: click.Context, /, **options: Any) -> None:  # noqa: ANN401 - click's values
    """Find what in manifests cannot work or will surprise. The first line is the conclusion.

    A problem is something that cannot work: packets that the manifests promise to a Service are rejected or dropped, or
    go elsewhere. A warning will surprise, such as a deprecated field. Each finding says what happens to packets, and
    what to do; docs/operations/lint.md describes each by its identifier.

    What depends on the node is checked for all Nodes of the manifests, or for that of --node.

    With --against, knft's rules for both manifests are compared on each of these nodes, and findings are those that are
    new or gone. An example is a list of flags: knft trace -f PATH EXAMPLE shows the outcome with the manifests of PATH.

    With --against-daemon, the objects before the change are those of the knft that runs in this network namespace, as
    root. It has no other Nodes, no headless Services, and no fields without effect on rules.

    To check the objects of a cluster, or a change of them, run

    \b
      kubectl get nodes,services,endpointslices,servicecidrs -A -o yaml > now.yaml
      knft lint -f now.yaml
      kubectl apply --dry-run=server -o yaml -f PATH > changed.yaml
      knft lint -f changed.yaml --partial --against now.yaml
      knft lint -f changed.yaml --against-daemon

    Exit status 0: there are no problems, but possibly warnings. 1: the running knft does not answer, or the output
    could not be written. 2: invalid flags, or manifests cannot be read. 3: there are problems, with --against after the
    change.
    """  # noqa: D301 - click keeps the lines of a paragraph that begins with \b
    if options["against_daemon"]:
        reject_node_flags(context, "cannot be used with --against-daemon: the running knft has its own settings")
    from knft.cli.lint import lint as lint_command  # noqa: PLC0415

    context.exit(lint_command(**options))
