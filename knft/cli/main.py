"""``knft``: the commands, their flags, and what becomes of errors."""

import logging
import os
import sys
from typing import Any

import click

from knft.cli.flags import (
    BACKENDS,
    backend_flags,
    node_flags,
    reject_conflicting_sides,
    reject_flags_of_other_backends,
    reject_render_flags,
    rule_set_flags,
)
from knft.cli.go_flags import GoCommand, given_flags, normalize_flag_name, run_flags
from knft.errors import ApiServerError, ConfigurationChangedError, KernelError, KnftError, ServingError

STATUS_FAILED, STATUS_UNUSABLE = 1, 2
"""Exit statuses: something failed that may go well the next time; or the command, its input or the machine is not
usable."""
_FAILURES = (KernelError, ApiServerError, ConfigurationChangedError, ServingError)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def cli() -> None:
    """Serve Kubernetes Services with nftables rules that never grow."""


@cli.command(cls=GoCommand, context_settings={"token_normalize_func": normalize_flag_name},
             short_help="Keep this node's tables equal to the objects.")  # fmt: skip
@run_flags
@click.pass_context
def run(context: click.Context, /, **_: Any) -> None:  # noqa: ANN401 - click's values
    """Sync this node's tables, and follow the objects until SIGTERM, which leaves the rules in place.

    It takes kube-proxy's flags and its configuration file as they stand. With --config the file says it all, but for
    --hostname-override, --master, the flags of logging, and knft's own.
    """
    given = given_flags(context)
    if given.get("--version"):
        _print_version()
        return
    from knft.app.signals import exit_on_signals  # noqa: PLC0415

    # A container's first process ignores what it has no handler for, and the imports below take a while.
    exit_on_signals()
    from knft.cli.run import run as run_command  # noqa: PLC0415

    run_command(given)


@cli.command(short_help="Print the ruleset; touches and reads nothing of this machine.")
@click.option("-f", "--filename", "paths", multiple=True, required=True, metavar="PATH",
              help="Manifest, directory of manifests, or - for standard input.")  # fmt: skip
@click.option("--backend", type=click.Choice(BACKENDS), default="nftables", show_default=True,
              help="nftables: knft's own; iptables, ipvs: what kube-proxy installs in that mode.")  # fmt: skip
@node_flags
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True,
              help="text: for people and the tools that load it; json: the same, structured.")  # fmt: skip
@click.option("--family", type=click.Choice(["ipv4", "ipv6"]), help="Print one family alone.")
@backend_flags
@click.pass_context
def render(context: click.Context, /, backend: str, **options: Any) -> None:  # noqa: ANN401 - click's values
    """Print the whole ruleset for some manifests, as nft text, or what a first sync sends, as JSON.

    Addresses come from the Node object or --node-ip, for kube-proxy's modes also from --local-address. JSON is one
    document for each family, a line each.

    With --backend iptables or ipvs, print what kube-proxy hands to the kernel in that mode: a shell script that feeds
    each part to its tool, or with --part the input of one tool alone.
    """
    reject_flags_of_other_backends(context, backend)
    if backend == "nftables":
        from knft.cli.render import render as render_command  # noqa: PLC0415

        render_command(**options)
        return
    from knft.cli.render_kube_proxy import render_kube_proxy  # noqa: PLC0415

    render_kube_proxy(backend, **options)


@cli.command(short_help="Tell what would become of packets with knft in kube-proxy's place.")
@click.option("-f", "--filename", "paths", multiple=True, metavar="PATH",
              help="Manifest, directory of manifests, or - for standard input: knft is rendered from it.")  # fmt: skip
@click.option("--against", type=click.Choice(["iptables", "ipvs"]), default="iptables", show_default=True,
              help="The mode of kube-proxy to compare with, for the same objects.")  # fmt: skip
@click.option("--live", is_flag=True,
              help="Compare with what is in force on this machine; changes nothing.")  # fmt: skip
@click.option("--watch", is_flag=True,
              help="With --live: compare again whenever either side changes, and tell when they part.")  # fmt: skip
@click.option("-o", "--output", type=click.Choice(["table", "json", "html"]), default="table", show_default=True,
              help="table: for people; json: for programs; html: one page to attach to a change request.")  # fmt: skip
@rule_set_flags
@click.pass_context
def diff(context: click.Context, /, **options: Any) -> None:  # noqa: ANN401 - click's values
    """Compare knft's rules with kube-proxy's, by what becomes of every class of packets.

    kube-proxy's are rendered for the same objects, or those of a capture (--iptables-save and so on, --nft-json), or
    with --live those that this machine has: iptables of every backend, ipsets, virtual servers of IPVS, and its own
    nftables tables. knft's are rendered from -f; with --live and without -f they are those in force.

    Exit status 0 means that packets fare alike, or differ by intent alone; 1 that some fare otherwise, or that a rule
    cannot be interpreted; 2 that a rule set could not be read. With --watch, a line with the time tells each change of
    the result, until SIGTERM or SIGINT, and the status is 0; with -o json it is an object a line.
    """
    if not options["paths"]:
        reject_render_flags(context)
    reject_conflicting_sides(context)
    from knft.cli.diff import diff as diff_command  # noqa: PLC0415

    context.exit(diff_command(**options))


@cli.command(short_help="Follow a packet through a rule set, without sending it.")
@click.option("--from", "from_", required=True, metavar="IP",
              help="The client: another host or a pod; or the node itself, by one of its addresses.")  # fmt: skip
@click.option("--to", required=True, metavar="ADDR:PORT[/PROTOCOL]",
              help="What it dials: 10.96.0.10:80/tcp, [fd00::10]:53/udp; tcp where nothing is said.")  # fmt: skip
@click.option("--in-interface", metavar="IF",
              help="The interface that the packet comes in by; any where nothing is said.")  # fmt: skip
@click.option("--remembered", metavar="IP:PORT",
              help="The endpoint that session affinity has sent this client to.")  # fmt: skip
@click.option("-f", "--filename", "paths", multiple=True, metavar="PATH",
              help="Render the rules from this manifest or directory, or - for standard input.")  # fmt: skip
@click.option("--backend", type=click.Choice(BACKENDS), default="nftables", show_default=True,
              help="With -f: knft's own rules, or what kube-proxy installs in mode iptables or ipvs.")  # fmt: skip
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True,
              help="table: for people; json: for programs, as knft/interpret/trace.schema.json says.")  # fmt: skip
@rule_set_flags
@click.pass_context
def trace(context: click.Context, /, **options: Any) -> None:  # noqa: ANN401 - click's values
    """Follow the first packet of a connection through a rule set, rule by rule, and say what becomes of it and why.

    The rules are rendered from manifests (-f), or captured on a node (--iptables-save and so on, --nft-json); without
    either they are those of knft's tables on this machine, which are read and left as they are.

    The node's own addresses, which tell its packets from others', come from the Node object or --node-ip, from
    --local-address, and for the rules of this machine from its interfaces.

    Exit status 0 means that the packet was followed, whatever became of it; 2 that a rule set could not be read.
    """
    if not options["paths"]:
        reject_render_flags(context)
    from knft.cli.trace import trace as trace_command  # noqa: PLC0415

    trace_command(**options)


@cli.command(short_help="Remove what knft made on this machine, or kube-proxy left.")
@click.option("--kube-proxy", "kube_proxy", type=click.Choice(["iptables", "ipvs", "nftables", "all"]),
              help="Remove what kube-proxy left in this mode, instead of knft's tables.")  # fmt: skip
def cleanup(kube_proxy: str | None) -> None:
    """Remove knft's tables of both families, and nothing else.

    With --kube-proxy, remove kube-proxy's leftovers, and nothing else: knft's tables stay. Stop kube-proxy first.
    """
    if kube_proxy is not None:
        from knft.cli.kube_proxy_cleanup import remove_leftovers  # noqa: PLC0415

        remove_leftovers(kube_proxy)
        return
    from knft.cli.cleanup import cleanup as cleanup_command  # noqa: PLC0415

    cleanup_command()


@cli.command(short_help="Print the version.")
def version() -> None:
    """Print knft's version."""
    _print_version()


def _print_version() -> None:
    from knft import __version__  # noqa: PLC0415

    click.echo(f"knft {__version__}")


def _print_error(message: str) -> None:
    """Say on standard error what is wrong, as an object where the log is one of objects."""
    logs = sys.modules.get("knft.cli.logs")
    if logs is not None and logs.writes_json():
        logging.getLogger("knft").error("%s", message)
    else:
        click.echo(f"knft: {message if logs is None else logs.hide_credentials(message)}", err=True)


def _discard_output() -> None:
    """Let what standard output still holds go nowhere: Python 3.13 writes it again at exit, and exits with 120."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def main() -> None:
    """Run the command line; turn knft's errors into one line and an exit status."""
    logging.captureWarnings(capture=True)
    try:
        cli()
    except OSError as error:
        # Errors of files and the kernel are ours by now: what is left is standard output.
        click.echo(f"knft: the output cannot be written: {error.strerror}", err=True)
        _discard_output()
        sys.exit(STATUS_FAILED)
    except KnftError as error:
        for line in str(error).splitlines():
            _print_error(line)
        failed = isinstance(error, _FAILURES)
        sys.exit(STATUS_FAILED if failed else STATUS_UNUSABLE)
