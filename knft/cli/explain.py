"""``knft explain``: says what a Service, a frontend, an address or an endpoint is, and why."""

from collections.abc import Iterable
from typing import Any

import click
import msgspec

from knft.cli.explain_text import format_explanation
from knft.cli.manifests import read_manifests
from knft.cli.options import config_from_options
from knft.cli.terminal import terminal_width, use_colours
from knft.comparison.explained import kernel_rules, kernel_source, object_source
from knft.comparison.kube_proxy_inputs import interface_addresses
from knft.config import Config, parse_addresses
from knft.errors import CaptureError, UsageError
from knft.explain.explain import explain as explain_query
from knft.explain.explanation import Explanation
from knft.explain.query import Query, parse_query
from knft.explain.sources import KernelSource, ObjectSource
from knft.model.objects import ObjectChange
from knft.silence import without_log

STATUS_FOUND, STATUS_NOT_FOUND = 0, 3


def explain(*, what: str, output: str, **options: Any) -> int:  # noqa: ANN401 - click's values
    """Print the explanation and return the exit status; raise UsageError, SourceError, CaptureError or KernelError."""
    found = _explanation(parse_query(what), options)
    click.echo(
        msgspec.json.encode(found) + b"\n"
        if output == "json"
        else format_explanation(found, terminal_width(), colours=use_colours()),
        nl=False,
    )
    return STATUS_FOUND if found.found else STATUS_NOT_FOUND


def _explanation(query: Query, options: dict[str, Any]) -> Explanation:
    from_flags = parse_addresses("--local-address", options["local_address"])
    if not options["paths"]:
        if options["live"]:
            msg = "--live requires -f: without -f the kernel's rules are explained"
            raise UsageError(msg)
        return explain_query(query, _kernel_source(from_flags))
    config = config_from_options(options)
    changes = read_manifests(options["paths"], described=True)
    if not options["live"]:
        return explain_query(query, _object_source(changes, config, from_flags))
    from knft.comparison.live import read_live_knft  # noqa: PLC0415 - netlink

    live = read_live_knft()
    # Both sides get the same addresses, so that only their rules differ.
    own = (*interface_addresses(changes, config), *live.addresses, *from_flags)
    return explain_query(query, _object_source(changes, config, own), kernel_rules(live.rules, own))


def _object_source(changes: tuple[ObjectChange, ...], config: Config, local_addresses: Iterable[str]) -> ObjectSource:
    """Return the objects as a source, without the log of the sync that renders them."""
    with without_log():
        return object_source(changes, config, local_addresses)


def _kernel_source(from_flags: tuple[str, ...]) -> KernelSource:
    from knft.comparison.live import read_live_knft  # noqa: PLC0415 - netlink

    live = read_live_knft()
    if not live.rules:
        msg = "this machine has no table of knft: name manifests with -f"
        raise CaptureError(msg)
    return kernel_source(live.rules, (*live.addresses, *from_flags))
