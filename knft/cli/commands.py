"""The commands of ``knft``, with their flags and help."""

import sys
from functools import partial
from typing import Any, Literal

import click

from knft import __version__
from knft.cli.error_output import print_error, writes_to_journal
from knft.cli.flags import (
    BACKENDS,
    backend_flags,
    file_option,
    node_flags,
    packet_flags,
    reject_conflicting_sides,
    reject_flags_of_configuration,
    reject_flags_of_other_backends,
    reject_node_flags,
    reject_render_flags,
    rule_set_flags,
)
from knft.cli.go_flags import GoCommand, given_flags, invalid_flags, normalize_flag_name, run_flags
from knft.cli.streams import exit_by_sigpipe

SHELLS = ("bash", "zsh", "fish")
COMPLETION_VARIABLE = "_KNFT_COMPLETE"
"""The environment variable with which the scripts of ``knft completion`` ask for completions."""


class _Commands(click.Group):
    """The commands; all except ``run`` end by SIGPIPE if the reader of their output has exited."""

    def invoke(self, context: click.Context) -> object:
        try:
            return super().invoke(context)
        except click.UsageError as error:
            # For the journal without click's lines about usage, so that it is one entry with a priority.
            if not writes_to_journal():
                raise
            print_error(error.format_message())
            context.exit(error.exit_code)
        except BrokenPipeError:
            # The pipe may be another one of the daemon's, and click exits with status 1.
            if context.invoked_subcommand == "run":
                raise
            exit_by_sigpipe()


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, message="knft %(version)s", help="Print knft's version and exit.")
def cli() -> None:
    """Kubernetes Service proxy that uses nftables."""


@cli.command(cls=GoCommand, context_settings={"token_normalize_func": normalize_flag_name},
             short_help="Keep this node's nftables tables in sync with Services.")  # fmt: skip
@run_flags
@click.pass_context
def run(context: click.Context, /, **_: Any) -> None:  # noqa: ANN401 - click's values
    """Watch Services and keep this node's tables in sync until SIGTERM. The rules then stay in place.

    knft accepts kube-proxy's flags and configuration file. With --config only --hostname-override, --master, the
    logging flags and knft's own flags apply; other flags are ignored.

    To capture objects for --manifests, run

    \b
      kubectl get nodes,services,endpointslices,servicecidrs -A -o yaml

    Exit status 0: knft has done what the flags ask for, or a signal ended it. 1: the kernel or the API server failed,
    the configuration file changed, or another knft process runs in this network namespace. 2: invalid flags,
    configuration or manifests, or an unsupported host.
    """  # noqa: D301 - click keeps the lines of a paragraph that begins with \b
    given, invalid = given_flags(context), invalid_flags(context)
    if given.get("--version") and not invalid:
        _print_version()
        return
    from knft.app.signals import exit_on_signals  # noqa: PLC0415

    # A container's first process ignores signals without a handler, and the imports below take a while.
    exit_on_signals(_end_plugins)
    from knft.cli.run import run as run_command  # noqa: PLC0415

    run_command(given, invalid)


def _end_plugins() -> None:
    """End credential plugins, if any run: they would outlive this process."""
    plugin_runner = sys.modules.get("knft.apiserver.plugin_runner")
    if plugin_runner is not None:
        plugin_runner.end_plugins()


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
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True,
              help="text: for people; json: for programs, see knft/preflight/preflight.schema.json.")  # fmt: skip
@partial(node_flags, needs_node=False)
@click.pass_context
def preflight(context: click.Context, /, **options: Any) -> None:  # noqa: ANN401 - click's values
    """Check this node before a switch from kube-proxy to knft. The first line is the verdict.

    It changes no rules. It needs CAP_NET_ADMIN, and CAP_NET_RAW to read the rules of iptables-legacy.

    Checked are the kernel, libnftables and the host's nft, base chains of other programs, kube-proxy's mode and its
    configuration (--config), conntrack, and the bit of the packet mark. With -f or --kubeconfig, the rules in the
    kernel are compared with knft's as by `knft diff --live`, and open connections with the endpoints. Each warning and
    each problem has a remedy.

    With --config, the file has the settings: of the flags about the node only --node, --node-ip and --service-cidr
    can be given.

    To capture the objects for -f, run

    \b
      kubectl get nodes,services,endpointslices,servicecidrs -A -o yaml

    Exit status 0: the node is ready; there may be warnings. 1: there is no problem, but the kernel, a program or the
    API server refused a request, so that something could not be checked; or the output could not be written.
    2: invalid flags, manifests that cannot be read, or a missing privilege. 3: the node is not ready.
    """  # noqa: D301 - click keeps the lines of a paragraph that begins with \b
    if options["config"] is not None:
        reject_flags_of_configuration(context)
    elif not options["paths"] and options["kubeconfig"] is None:
        reject_render_flags(context, except_for=("masquerade_bit",))
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
    new or gone.

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


@cli.command(short_help="Remove knft's tables, or kube-proxy's leftovers on this machine.")
@click.option("--kube-proxy", "kube_proxy", type=click.Choice(["iptables", "ipvs", "nftables", "all"]),
              help="Remove kube-proxy's leftovers of this mode instead of knft's tables.")  # fmt: skip
@click.option("--wait-for-lock", is_flag=True,
              help="If another knft process runs in this network namespace, wait until it exits.")  # fmt: skip
@click.option("--force", is_flag=True,
              help="Remove the tables although another knft process runs, which will create them again.")  # fmt: skip
@click.option("--dry-run", is_flag=True,
              help="Remove nothing; print what would be removed: tables with counts, and other objects.")  # fmt: skip
@click.option("-o", "--output", "form", type=click.Choice(["text", "json"]), default="text", show_default=True,
              help="text: a line for each step; json: for programs, see knft/cli/cleanup.schema.json.")  # fmt: skip
def cleanup(kube_proxy: str | None, *, wait_for_lock: bool, force: bool, dry_run: bool,
            form: Literal["text", "json"]) -> None:  # fmt: skip
    """Remove knft's tables of both IP families. `knft run --cleanup` removes kube-proxy's leftovers as well.

    If another knft process runs in this network namespace, remove nothing. --dry-run is possible while it runs.

    With --kube-proxy, remove kube-proxy's leftovers instead; knft's tables stay. Stop kube-proxy first.

    Exit status 0: all was removed, or listed with --dry-run, or there was nothing to remove. 1: another knft process
    runs, the kernel refused to remove or list an object, or the output could not be written. 2: invalid flags, or a
    missing privilege or library.
    """
    from knft.cli.cleanup_report import CleanupReport  # noqa: PLC0415
    from knft.cli.output import unfailing_output  # noqa: PLC0415

    with unfailing_output() as output:
        report = CleanupReport(output, form, dry_run=dry_run)
        if kube_proxy is not None:
            from knft.cli.kube_proxy_cleanup import remove_leftovers  # noqa: PLC0415

            remove_leftovers(kube_proxy, report)
            return
        from knft.cli.cleanup import cleanup as cleanup_command  # noqa: PLC0415

        cleanup_command(report, wait_for_lock=wait_for_lock, force=force)


@cli.command(short_help="Print the status of the running knft.")
@click.option("--audit", is_flag=True,
              help="Compare the kernel's tables now with what knft wrote, then print the status.")  # fmt: skip
@click.option("-o", "--output", type=click.Choice(["text", "summary", "json"]), default="text", show_default=True,
              help="text: lines for people; summary: one line, for many nodes; json: for programs, see "
                   "knft/cli/status.schema.json.")  # fmt: skip
@click.pass_context
def status(context: click.Context, output: str, *, audit: bool) -> None:
    """Print whether the running knft is ready, its lasting problems, and details.

    The details are versions, node, source of the objects, conntrack, what kube-proxy left on this machine and the
    command that removes it, and for each IP family the last sync, pending changes, numbers of objects, quarantined and
    left-out Services, changes by other programs and the last audit.

    The running knft audits its tables once an hour: it reads them, and compares their elements and rules with what it
    wrote. With --audit it does so now, and the first line says what differs. It repairs what differs.

    The summary is one line with tabs: node, version, whether knft is ready, age of the last sync, Services left out,
    last audit, problems.

    Run it as root, in knft's container or on the host: it asks the knft of this network namespace.

    Exit status 0: the status was printed, also if knft is not ready. 1: no knft process answers, or the output could
    not be written. 3: with --audit, a table differs or was not compared.
    """
    from knft.cli.status import status as status_command  # noqa: PLC0415

    context.exit(status_command(output, audit=audit))


@cli.command(short_help="Show connections and syncs per second.")
@click.option(
    "--by",
    type=click.Choice(["service", "frontend"]),
    default="service",
    show_default=True,
    help="service: a row for each Service port; frontend: a row for each address and NodePort.",
)
@click.option(
    "--sort",
    type=click.Choice(["rate", "refused", "total", "name"]),
    default="rate",
    show_default=True,
    help="Order of the rows: by new or refused connections per second, all connections, or name.",
)
@click.option("--filter", "text", metavar="TEXT", default="", help="Print only rows that contain this text.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True,
              help="text: lines for people; json: for programs, see knft/cli/top.schema.json.")  # fmt: skip
def top(by: Literal["service", "frontend"], sort: Literal["rate", "refused", "total", "name"], text: str,
        output: str) -> None:  # fmt: skip
    """Show new and refused connections per second by Service, and syncs per second with their duration and latency.

    Connections are counted only if knft runs with --service-counters. It reads the kernel's counters every 5 seconds.

    On a terminal, the screen follows the running knft. Keys: q ends, s changes the order, f shows frontends or
    Services, / begins a filter that Enter ends, Esc clears it. Otherwise, and with -o json, the rates between two
    readings are printed once.

    Run it as root, in knft's container or on the host: it asks the knft of this network namespace.

    Exit status 0: the rates were printed, or q was pressed. 1: no knft process answers, or the output could not be
    written. 2: invalid flags.
    """
    from knft.cli.top import top as top_command  # noqa: PLC0415
    from knft.cli.top_text import Selection  # noqa: PLC0415

    top_command(Selection(by, sort, text), output)


@cli.command(short_help="Print the last changes of Services and tables, and failures.")
@click.argument("service", required=False)
@click.option("--endpoint", metavar="IP[:PORT]", help="Print only changes of this endpoint.")
@click.option("--since", metavar="TIME",
              help="Print only changes since a time (RFC 3339), or in the last 5m, 1h30m and so on.")  # fmt: skip
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True,
              help="text: lines for people; json: for programs, see knft/cli/history.schema.json.")  # fmt: skip
@click.pass_context
def history(context: click.Context, service: str | None, endpoint: str | None, since: str | None, output: str) -> None:
    """Print which endpoints Service ports gained and lost, by which event, and when that was in force.

    SERVICE is NAMESPACE/NAME, or NAME in namespace default; NAMESPACE/NAME:PORT selects one port. Changes of
    knft's tables by other programs, failed syncs, and when the API server could not be watched, are printed, too,
    except with --endpoint.

    The running knft keeps the last changes in memory, up to 1000 entries and endpoints together. Run the command as
    root, in knft's container or on the host: it asks the knft of this network namespace.

    Exit status 0: the changes were printed, if there were any. 1: no knft process answers, or the output could not be
    written. 2: invalid flags. 3: the running knft does not have SERVICE or its port.
    """
    from knft.cli.history import history as history_command  # noqa: PLC0415

    context.exit(history_command(service, endpoint, since, output))


@cli.command(short_help="Print a script that completes commands in bash, zsh or fish.")
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the script that lets a shell complete knft's commands, flags, values of flags, and file names.

    The script runs knft for each completion, so it need not be printed again for another version. To load it in each
    new shell:

    \b
      knft completion bash > /etc/bash_completion.d/knft
      knft completion zsh > /usr/local/share/zsh/site-functions/_knft
      knft completion fish > /etc/fish/completions/knft.fish

    Exit status 0: the script was printed. 1: the output could not be written. 2: the shell is unknown.
    """  # noqa: D301 - click keeps the lines of a paragraph that begins with \b
    from knft.cli.completion import script  # noqa: PLC0415 - loads click's completion

    click.echo(script(shell, cli, COMPLETION_VARIABLE), nl=False)


@cli.command(short_help="Print the versions of knft, Python, libnftables and the kernel.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True,
              help="text: a line for each program; json: for programs, see knft/cli/version.schema.json.")  # fmt: skip
def version(output: str) -> None:
    """Print the versions of knft, Python, libnftables and the kernel, and how knft was installed.

    Without CAP_NET_ADMIN libnftables does not report its version.

    Exit status 0: the versions were printed. 1: the output could not be written.
    """
    from knft.cli.version import version as version_command  # noqa: PLC0415 - loads the kernel's libraries

    version_command(output)


def _print_version() -> None:
    click.echo(f"knft {__version__}")
