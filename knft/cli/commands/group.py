"""The group of the commands of ``knft``, which each module of commands adds to."""

import click

from knft import __version__
from knft.cli.error_output import print_error, writes_to_journal
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
