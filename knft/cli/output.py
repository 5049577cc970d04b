"""The output of commands that change this machine: a failure to print does not stop the changes."""

import contextlib
from collections.abc import Iterator

import click


class Output:
    """Prints lines; after the first failure it prints no more of them to the same stream, and remembers the error."""

    def __init__(self) -> None:
        """Print nothing yet."""
        self._errors: dict[bool, OSError] = {}

    def print(self, line: str, *, err: bool = False) -> None:
        """Print a line to standard output, or to standard error; raise nothing."""
        if err in self._errors:
            return
        try:
            click.echo(line, err=err)
        except OSError as error:
            self._errors[err] = error

    def raise_failure(self) -> None:
        """Raise the OSError of the first line that could not be printed to standard output."""
        if error := self._errors.get(False):
            raise error


@contextlib.contextmanager
def unfailing_output() -> Iterator[Output]:
    """Yield an Output; raise its OSError at the end, unless another exception ends the command."""
    output = Output()
    yield output
    output.raise_failure()
