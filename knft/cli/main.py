"""``knft``: the commands, their flags, and what becomes of errors."""

import logging
import os
import sys
from collections.abc import Callable
from typing import Any

import click

from knft.errors import KernelError, KnftError

STATUS_FAILED, STATUS_UNUSABLE = 1, 2
"""Exit statuses: the kernel refused something; or the command, its input or the machine is not usable."""


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def cli() -> None:
    """Serve Kubernetes Services with nftables rules that never grow."""


_OPTIONS = (
    click.option("--node", "node", required=True, metavar="NAME", help="Name of this node, as in nodeName."),
    click.option("--node-ip", multiple=True, metavar="IP", help="The node's address; one of each family."),
    click.option("--detect-local-mode", default="ClusterCIDR", show_default=True,
                 type=click.Choice(["ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix"]),
                 help="How traffic of this cluster's pods is told from other traffic."),
    click.option("--pod-bridge-interface", default="", metavar="NAME", help="The bridge of mode BridgeInterface."),
    click.option("--pod-interface-name-prefix", default="", metavar="PREFIX",
                 help="What pod interfaces begin with, in mode InterfaceNamePrefix."),
    click.option("--cluster-cidr", multiple=True, metavar="CIDR",
                 help="Where pods have their addresses; traffic from elsewhere to cluster IPs is masqueraded."),
    click.option("--service-cidr", multiple=True, metavar="CIDR",
                 help="Where cluster IPs come from, beside ServiceCIDR objects; unallocated ones are dropped."),
    click.option("--nodeport-addresses", multiple=True, metavar="WORD|CIDR",
                 help="Which local addresses accept NodePorts: primary (default), all, or CIDRs."),
    click.option("--masquerade-all", is_flag=True, help="Masquerade all traffic to cluster IPs."),
    click.option("--masquerade-bit", type=click.IntRange(0, 31), default=14, show_default=True, metavar="BIT",
                 help="The bit of the packet mark that asks for masquerading."),
)  # fmt: skip


def _shared(command: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@cli.command(short_help="Keep this node's tables equal to the objects.")
@click.option("--manifests", required=True, metavar="DIR", help="Directory of YAML and JSON manifests to follow.")
@click.option("--once", is_flag=True, help="Sync once and exit.")
@_shared
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
@_shared
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True,
              help="text: for people and nft -f; json: what a first sync sends after the declarations.")  # fmt: skip
@click.option("--declarations", is_flag=True, help="Print the declarations alone, as nft text.")
@click.option("--family", type=click.Choice(["ipv4", "ipv6"]), help="Print one family alone.")
def render(**options: Any) -> None:  # noqa: ANN401 - click's values
    """Print the whole ruleset for some manifests, as nft text, or what a first sync sends, as JSON.

    Addresses come from the Node object or --node-ip. JSON is one document for each family, a line each.
    """
    from knft.cli.render import render as render_command  # noqa: PLC0415

    render_command(**options)


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
