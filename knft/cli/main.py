"""``knft``: the commands, their flags, and what becomes of errors."""

import logging
import os
import sys
from typing import Any

import click

from knft.cli.flags import (
    BACKENDS,
    backend_flags,
    refuse_foreign_flags,
    rule_flags,
    shared_flags,
    shared_flags_of_modes,
)
from knft.errors import KernelError, KnftError

STATUS_FAILED, STATUS_UNUSABLE = 1, 2
"""Exit statuses: the kernel refused something; or the command, its input or the machine is not usable."""


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def cli() -> None:
    """Serve Kubernetes Services with nftables rules that never grow."""


@cli.command(short_help="Keep this node's tables equal to the objects.")
@click.option("--manifests", required=True, metavar="DIR", help="Directory of YAML and JSON manifests to follow.")
@click.option("--once", is_flag=True, help="Sync once and exit.")
@shared_flags
@click.option("--min-sync-period", default="1s", show_default=True, metavar="DURATION",
              help="Shortest pause between two syncs.")  # fmt: skip
@click.option("--sync-period", default="30s", show_default=True, metavar="DURATION",
              help="Pause after a failed sync.")  # fmt: skip
@click.option("-v", "--v", "verbosity", type=click.IntRange(0), default=0, metavar="LEVEL",
              help="0: first syncs and problems; 2: every sync.")  # fmt: skip
def run(**options: Any) -> None:  # noqa: ANN401 - click's values
    """Sync this node's tables, and follow the directory until SIGTERM, which leaves the rules in place."""
    from knft.cli.run import run as run_command  # noqa: PLC0415

    run_command(**options)


@cli.command(short_help="Print the ruleset; touches and reads nothing of this machine.")
@click.option("-f", "--filename", "paths", multiple=True, required=True, metavar="PATH",
              help="Manifest, directory of manifests, or - for standard input.")  # fmt: skip
@click.option("--backend", type=click.Choice(BACKENDS), default="nftables", show_default=True,
              help="nftables: knft's own; iptables, ipvs: what kube-proxy installs in that mode.")  # fmt: skip
@shared_flags_of_modes
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
    refuse_foreign_flags(context, backend)
    if backend == "nftables":
        from knft.cli.render import render as render_command  # noqa: PLC0415

        render_command(**options)
        return
    from knft.cli.legacy import render_legacy  # noqa: PLC0415

    render_legacy(backend, **options)


@cli.command(short_help="Tell what would become of packets with knft in kube-proxy's place.")
@click.option("-f", "--filename", "paths", multiple=True, required=True, metavar="PATH",
              help="Manifest, directory of manifests, or - for standard input.")  # fmt: skip
@click.option("--against", type=click.Choice(["iptables", "ipvs"]), default="iptables", show_default=True,
              help="The mode of kube-proxy to compare with, for the same objects.")  # fmt: skip
@click.option("--iptables-save", metavar="FILE", help="Compare with what iptables-save printed on a node.")
@click.option("--ip6tables-save", metavar="FILE", help="The same of ip6tables-save.")
@click.option("--ipset-save", metavar="FILE", help="What ipset save printed there, for rules that name sets.")
@click.option("--ipvsadm-save", metavar="FILE", help="What ipvsadm -Sn printed there, in mode ipvs.")
@click.option("--nft-json", metavar="FILE", help="Compare with what nft -j list ruleset printed on a node.")
@click.option("-o", "--output", type=click.Choice(["table", "json", "html"]), default="table", show_default=True,
              help="table: for people; json: for programs; html: one page to attach to a change request.")  # fmt: skip
@shared_flags_of_modes
@rule_flags
@click.pass_context
def diff(context: click.Context, /, **options: Any) -> None:  # noqa: ANN401 - click's values
    """Compare knft's rules with kube-proxy's, by what becomes of every class of packets.

    Exit status 0 means that packets fare alike, or differ by intent alone; 1 that some fare otherwise, or that a rule
    cannot be interpreted; 2 that a rule set could not be read.
    """
    from knft.cli.diff import diff as diff_command  # noqa: PLC0415

    context.exit(diff_command(**options))


@cli.command(short_help="Remove what knft made on this machine, or kube-proxy left.")
@click.option("--kube-proxy", "kube_proxy", type=click.Choice(["iptables", "ipvs", "nftables", "all"]),
              help="Remove what kube-proxy left in this mode, instead of knft's tables.")  # fmt: skip
def cleanup(kube_proxy: str | None) -> None:
    """Remove knft's tables of both families, and nothing else.

    With --kube-proxy, remove kube-proxy's leftovers, and nothing else: knft's tables stay. Stop kube-proxy first.
    """
    if kube_proxy is not None:
        from knft.cli.takeover import remove_leftovers  # noqa: PLC0415

        remove_leftovers(kube_proxy)
        return
    from knft.cli.cleanup import cleanup as cleanup_command  # noqa: PLC0415

    cleanup_command()


@cli.command(short_help="Print the version.")
def version() -> None:
    """Print knft's version."""
    from knft import __version__  # noqa: PLC0415

    click.echo(f"knft {__version__}")


def _forget_output() -> None:
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
        _forget_output()
        sys.exit(STATUS_FAILED)
    except KnftError as error:
        click.echo(f"knft: {error}", err=True)
        sys.exit(STATUS_FAILED if isinstance(error, KernelError) else STATUS_UNUSABLE)
