"""``knft status``: asks the running knft how it is, and prints the answer."""

import click
import msgspec

from knft.cli.status_text import format_status
from knft.cli.terminal import terminal_width, use_colours
from knft.control.client import ask, decode
from knft.control.messages import STATUS_PATH, Status


def status(output: str) -> None:
    """Print the status as "text" or "json"; raise ControlError if no daemon answers."""
    answer = ask(STATUS_PATH)
    if output == "json":
        click.echo(msgspec.json.format(answer, indent=2).decode())
        return
    click.echo(format_status(decode(answer, Status), terminal_width(), colours=use_colours()), nl=False)
