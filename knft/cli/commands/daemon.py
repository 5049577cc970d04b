"""``knft run``, with its flags and help."""

import sys
from typing import Any

import click

from knft import __version__
from knft.cli.commands.group import cli
from knft.cli.go_flags import GoCommand, given_flags, invalid_flags, normalize_flag_name, run_flags


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


def _print_version() -> None:
    click.echo(f"knft {__version__}")
