"""Checks kube-proxy's configuration file."""

import shlex
from collections.abc import Iterator

from knft.preflight.facts import ConfigurationFacts
from knft.preflight.report import Finding


def check_configuration(found: ConfigurationFacts | None) -> Iterator[Finding]:
    """Yield errors, and fields that mean something else to knft."""
    if found is None:
        yield Finding("not checked", "no configuration file was given", "name kube-proxy's file with --config")
        return
    command = f"knft run --config {shlex.quote(found.path)} --write-config-to FILE"
    for error in found.errors:
        yield Finding("problem", error, "correct the file: `knft run` does not start with it")
    for warning in found.warnings:
        remedy = f"`{command}` writes the settings that apply: change those that should be different"
        yield Finding("warning", warning, remedy)
    if not (found.errors or found.warnings):
        yield Finding("ok", f"every field of {found.path} has the same effect in knft")
