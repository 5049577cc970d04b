"""The commands that ask the running knft, with their flags and help: status, top and history."""

from typing import Literal

import click

from knft.cli.commands.group import cli


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
