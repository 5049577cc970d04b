"""The commands about rule sets, with their flags and help: render, diff and trace."""

from typing import Any

import click

from knft.cli.commands.group import cli
from knft.cli.flags import (
    BACKENDS,
    backend_flags,
    file_option,
    node_flags,
    packet_flags,
    reject_conflicting_sides,
    reject_flags_of_configuration,
    reject_flags_of_other_backends,
    reject_render_flags,
    rule_set_flags,
)


@cli.command(short_help="Print the rule set, without reading or changing this machine.")
@file_option("-f", "--filename", "paths", multiple=True, required=True, metavar="PATH",
              help="Manifest, directory of manifests, or - for standard input.")  # fmt: skip
@click.option("--backend", type=click.Choice(BACKENDS), default="nftables", show_default=True,
              help="nftables: knft's rules; iptables, ipvs: kube-proxy's rules in that mode.")  # fmt: skip
@node_flags
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True,
              help="text: input of nft or the other tools; json: the same, structured.")  # fmt: skip
@click.option("--family", type=click.Choice(["ipv4", "ipv6"]), help="Print only one IP family.")
@backend_flags
@click.pass_context
def render(context: click.Context, /, backend: str, **options: Any) -> None:  # noqa: ANN401 - click's values
    """Print the rule set for manifests as nft text, or the transactions of the first sync on an empty node as JSON.

    The node's addresses come from the Node object or --node-ip; kube-proxy's modes also use --local-address. JSON has
    one document per IP family, each on one line. Two commands load it, the second one for each family; the declarations
    are text, because nft 1.0.6 cannot declare concatenated maps in JSON:

    \b
      knft render -f PATH --node NAME --declarations | nft -f -
      knft render -f PATH --node NAME --family ipv4 -o json | nft -j -f -

    To capture the objects for -f, run

    \b
      kubectl get nodes,services,endpointslices,servicecidrs -A -o yaml

    Text has the chains that packets reach. A running knft also has the chains that Services with 1 to 64 endpoints may
    need later, and chains that identify its version, so the kernel's tables have more chains.

    With --backend iptables or ipvs, print what kube-proxy does in that mode: a shell script that runs each tool with
    its input, or with --part only the input of one tool.

    Exit status 0: the rule set was printed. 1: the output could not be written. 2: invalid flags or manifests.
    """  # noqa: D301 - click keeps the lines of a paragraph that begins with \b
    reject_flags_of_other_backends(context, backend)
    if backend == "nftables":
        from knft.cli.render import render as render_command  # noqa: PLC0415

        render_command(**options)
        return
    from knft.cli.render_kube_proxy import render_kube_proxy  # noqa: PLC0415

    render_kube_proxy(backend, **options)


@cli.command(short_help="Compare where packets go with kube-proxy's rules and knft's.")
@file_option("-f", "--filename", "paths", multiple=True, metavar="PATH",
              help="Manifest, directory of manifests, or - for standard input: source of knft's rules.")  # fmt: skip
@click.option("--against", type=click.Choice(["iptables", "ipvs", "nftables"]), default="iptables", show_default=True,
              help="Mode of kube-proxy to render for the same objects; nftables: as of release 1.36.")  # fmt: skip
@click.option("--live", is_flag=True,
              help="Compare with the rules in this machine's kernel; changes nothing.")  # fmt: skip
@click.option("--watch", is_flag=True,
              help="With --live: compare again after each change, and print what has changed in the result; with "
                   "-o json each new result as a whole, one per line.")  # fmt: skip
@click.option("-o", "--output", type=click.Choice(["table", "json", "html"]), default="table", show_default=True,
              help="table: text (with --watch short, for each result); json: for programs; html: one page for a change "
                   "request.")  # fmt: skip
@rule_set_flags
@click.pass_context
def diff(context: click.Context, /, **options: Any) -> None:  # noqa: ANN401 - click's values
    """Compute the outcomes of packets with kube-proxy's rules and with knft's, and print the differences.

    By default, kube-proxy's rules are rendered for the same objects, in the mode of --against.

    With --iptables-save, --ip6tables-save or --nft-json, kube-proxy's rules are read from files.

    With --live, kube-proxy's rules are read from this machine's kernel: iptables of every backend, ipsets, IPVS
    virtual servers and kube-proxy's nftables tables.

    knft's rules are rendered from the manifests of -f. Without -f, --live reads knft's tables from the kernel.

    With --config, the file has knft's settings: of the flags about the node only --node, --node-ip and --service-cidr
    can be given. kube-proxy's rules must then be those of --live or of files.

    To capture the objects for -f, run

    \b
      kubectl get nodes,services,endpointslices,servicecidrs -A -o yaml

    With --watch, print each new result, starting with a line with the time (with -o json an object per line), until
    SIGTERM or SIGINT, and exit with status 0.

    Exit status 0: packets have the same outcome, or all differences are expected. 1: some packets have different
    outcomes on the two sides, or reach a rule that knft cannot interpret; or the output could not be written. 2: a rule
    set cannot be read. 3: nothing was compared, because neither side has a Service, no IP family has rules on both
    sides, or knft can interpret no rule that packets reach.
    """  # noqa: D301 - click keeps the lines of a paragraph that begins with \b
    if not options["paths"]:
        reject_render_flags(context)
    elif options["config"] is not None:
        reject_flags_of_configuration(context)
    reject_conflicting_sides(context)
    from knft.cli.diff import diff as diff_command  # noqa: PLC0415

    context.exit(diff_command(**options))


@cli.command(short_help="Trace a packet through a rule set, without sending it.")
@click.option("--from", "from_", required=True, metavar="IP",
              help="Address of the client: another host, a pod, or the node itself.")  # fmt: skip
@click.option("--to", required=True, metavar="ADDR:PORT[/PROTOCOL]",
              help="Destination, such as 10.96.0.10:80/tcp, [fd00::10]:53/udp or 10.96.0.10/icmp; default protocol: "
                   "tcp.")  # fmt: skip
@packet_flags
@file_option("-f", "--filename", "paths", multiple=True, metavar="PATH",
              help="Manifest, directory of manifests, or - for standard input: source of the rules.")  # fmt: skip
@click.option("--backend", type=click.Choice(BACKENDS), default="nftables", show_default=True,
              help="With -f: knft's rules, or kube-proxy's in mode iptables or ipvs.")  # fmt: skip
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True,
              help="table: text; json: for programs, see knft/interpret/trace.schema.json.")  # fmt: skip
@rule_set_flags
@click.pass_context
def trace(context: click.Context, /, **options: Any) -> None:  # noqa: ANN401 - click's values
    """Trace the first packet of a connection through a rule set: print the rules that it hits and its outcome.

    The rules are rendered from manifests (-f) or captured on a node (--iptables-save and so on, --nft-json). Without
    -f and without captures, knft reads its own tables from this machine's kernel.

    The node's addresses come from the Node object or --node-ip, from --local-address, and for the rules of this
    machine from its interfaces.

    With --config, the file has knft's settings: of the flags about the node only --node, --node-ip and --service-cidr
    can be given.

    To capture the objects for -f, run

    \b
      kubectl get nodes,services,endpointslices,servicecidrs -A -o yaml

    Exit status 0: the packet was traced, whatever its outcome. 1: the kernel's tables cannot be read, or the
    output could not be written. 2: invalid flags, or a rule set cannot be read. 3: the outcome depends on the node's
    addresses, and they are unknown.
    """  # noqa: D301 - click keeps the lines of a paragraph that begins with \b
    if not options["paths"]:
        reject_render_flags(context)
    elif options["config"] is not None:
        reject_flags_of_configuration(context)
    from knft.cli.trace import trace as trace_command  # noqa: PLC0415

    context.exit(trace_command(**options))
