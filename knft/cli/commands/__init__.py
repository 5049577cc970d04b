"""The commands of ``knft``, with their flags and help."""

from knft.cli.commands import findings, installation, rule_sets, running
from knft.cli.commands.daemon import run
from knft.cli.commands.group import COMPLETION_VARIABLE, SHELLS, cli

__all__ = ["COMPLETION_VARIABLE", "SHELLS", "cli", "findings", "installation", "rule_sets", "run", "running"]
