"""The output of commands that change this machine: a failure to print does not stop the changes."""

import contextlib
from collections.abc import Iterator

import click


class Output:
    """Prints lines to standard output; after the first failure it prints no more, and remembers the error."""

    def __init__(self) -> None:
        """Print nothing yet."""
        self._error: OSError | None = None

    def print(self, line: str) -> None:
        """Print a line; raise nothing."""
        if self._error is not None:
            return
        try:
            click.echo(line)
        except OSError as error:
            self._error = error

    def raise_failure(self) -> None:
        """Raise the OSError of the first line that could not be printed."""
        if self._error is not None:
            raise self._error


@contextlib.contextmanager
def unfailing_output() -> Iterator[Output]:
    """Yield an Output; raise its OSError at the end, unless another exception ends the command."""
    output = Output()
    yield output
    output.raise_failure()
