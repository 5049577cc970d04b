"""The commands about this installation, with their flags and help: cleanup, completion and version."""

from typing import Literal

import click

from knft.cli.commands.group import COMPLETION_VARIABLE, SHELLS, cli


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
    from knft.cli.terminal import terminal_width  # noqa: PLC0415

    with unfailing_output() as output:
        report = CleanupReport(output, form, dry_run=dry_run, width=terminal_width())
        if kube_proxy is not None:
            from knft.cli.kube_proxy_cleanup import remove_leftovers  # noqa: PLC0415

            remove_leftovers(kube_proxy, report)
            return
        from knft.cli.cleanup import cleanup as cleanup_command  # noqa: PLC0415

        cleanup_command(report, wait_for_lock=wait_for_lock, force=force)


@cli.command(short_help="Print a script that completes commands in bash, zsh or fish.")
@click.argument("shell", type=click.Choice(SHELLS))
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True,
              help="text: the script; json: shell and script, see knft/cli/completion.schema.json.")  # fmt: skip
def completion(shell: str, output: str) -> None:
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

    printed = script(shell, cli, COMPLETION_VARIABLE)
    if output == "text":
        click.echo(printed, nl=False)
        return
    import msgspec  # noqa: PLC0415

    from knft.cli.completion_document import CompletionDocument  # noqa: PLC0415

    click.echo(msgspec.json.encode(CompletionDocument(shell, printed)))


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
