"""``knft trace``: prints the path of a packet through a rule set, without sending it."""

from typing import Any

import click
import msgspec
from msgspec import Struct

from knft.cli.capture_files import capture_from_options
from knft.cli.kube_proxy_options import kube_proxy_options
from knft.cli.manifests import read_manifests
from knft.cli.options import config_from_options
from knft.cli.terminal import terminal_width, use_colours
from knft.cli.trace_packet import PacketQuery, packet_class, parse_query
from knft.cli.trace_text import format_trace
from knft.comparison.captures import Rules, read_capture
from knft.comparison.rendered import kube_proxy_rules
from knft.comparison.sides import KnftInput, address_ranges
from knft.config import parse_addresses, parse_one_address_per_family
from knft.errors import CaptureError, UsageError
from knft.families import IpVersion
from knft.interpret.compare import formatting
from knft.interpret.compare.services import ServiceNames
from knft.interpret.outcomes import PacketClass
from knft.interpret.ranges import LOOPBACK, Ranges, subtract
from knft.interpret.rules import State
from knft.interpret.trace import FindEntries, Trace, TracedClient, Tracer, is_input_missing, undecided_case
from knft.proxy_mode import Mode

STATUS_INPUT_MISSING = 3
"""The exit status if the outcome depends on the node's addresses, which are unknown."""

_NO_ADDRESS = "no address of the node is known; name its addresses with --local-address"
_MISSING = "the node's addresses are unknown, and if {} is one of them, the packet has another outcome"


class RuleSource(Struct, frozen=True):
    """The rules to trace with their name, rule sets that name the Services, and the node's addresses.

    ``find_entries`` finds affinity entries that the rules do not have.
    """

    name: str
    rules: Rules
    rules_with_service_names: Rules
    node_addresses: dict[IpVersion, Ranges]
    warnings: tuple[str, ...] = ()
    find_entries: FindEntries | None = None


def trace(*, output: str, **options: Any) -> int:  # noqa: ANN401 - click's values
    """Print the trace, and return the exit status; raise UsageError, SourceError, CaptureError or KernelError."""
    query = parse_query(options)
    source = _rule_source(options)
    found = trace_packet(query, source)
    if output == "json":
        click.echo(msgspec.json.encode(found) + b"\n", nl=False)
    else:
        click.echo(format_trace(found, width=terminal_width(), colours=use_colours()), nl=False)
    return STATUS_INPUT_MISSING if is_input_missing(found) else 0


def trace_packet(query: PacketQuery, source: RuleSource) -> Trace:
    """Return the packet's path; raise CaptureError or UsageError."""
    version = query.version
    rules, node_addresses = source.rules.get(version), source.node_addresses[version]
    if rules is None:
        msg = f"{source.name}: no IPv{version} rules, but --to is an IPv{version} address"
        raise CaptureError(msg)
    # An address that another interface has too is an address of the node without kube-ipvs0 as well.
    rules = msgspec.structs.replace(rules, ipvs_addresses=subtract(rules.ipvs_addresses, node_addresses))
    to = query.to
    packet = packet_class(query, to, rules, node_addresses)
    tracer = Tracer(rules, node_addresses)
    earlier = packet_class(query, query.remembered_through or to, rules, node_addresses)
    client = _client(query, packet, tracer, earlier, source.find_entries)
    listed = [one for one in (source.rules_with_service_names.get(version), rules) if one is not None]
    names = ServiceNames(listed)
    ways = tracer.alternatives(packet, client)
    service = names.name(to.address, to.protocol, to.port, is_local=packet.is_local)
    if service is None and not subtract(node_addresses, LOOPBACK[version]):
        service = names.name(to.address, to.protocol, to.port, is_local=True)
        if service is not None or _is_served_if_local(tracer, packet, client):
            ways = (undecided_case(_MISSING.format(formatting.format_address(version, to.address))),)
    return Trace(
        rule_set=source.name,
        family=f"IPv{version}",
        source=formatting.format_address(version, query.source),
        sender=packet.origin,
        interface=query.interface or "",
        destination=formatting.format_frontend(version, to.address, to.protocol, to.port or 0),
        service=service,
        client=client.text,
        ways=ways,
        remarks=source.warnings,
        state=query.state,
        source_port=query.source_port,
        output_interface=query.output_interface or "",
    )


def _is_served_if_local(tracer: Tracer, packet: PacketClass, client: TracedClient) -> bool:
    """Return whether a packet would reach an endpoint if its destination were an address of the node."""
    cases = tracer.alternatives(msgspec.structs.replace(packet, is_local=True), client)
    return any(end.endpoint for case in cases for end in case.ends)


def _client(
    query: PacketQuery, packet: PacketClass, tracer: Tracer, earlier: PacketClass, find_entries: FindEntries | None
) -> TracedClient:
    """Return the client and its affinity entries; ``earlier`` are packets of its earlier connection."""
    endpoint = query.remembered
    if endpoint is None:
        return tracer.client_in_rule_set(packet, query.source, find_entries)
    states: frozenset[State] = frozenset({"new"})
    opening = msgspec.structs.replace(earlier, fields=earlier.fields._replace(states=states))
    found = tracer.client_sent_to(opening, endpoint.address, endpoint.port)
    if found is None:
        where = formatting.format_socket(endpoint.version, endpoint.address, endpoint.port)
        msg = f"--remembered: the rules have no session affinity for endpoint {where} at this frontend"
        raise UsageError(msg)
    return found


def _rule_source(options: dict[str, Any]) -> RuleSource:
    """Return the rules that the flags select: rendered, captured, or knft's tables in this machine's kernel."""
    capture = capture_from_options(options)
    if capture is None:
        return _rendered_source(options) if options["paths"] else _live_source(options)
    if options["paths"]:
        msg = "-f cannot be used with captured rules; leave out -f or the captures"
        raise UsageError(msg)
    addresses = _addresses_from_flags(options)
    warnings = () if addresses else (_NO_ADDRESS,)
    names = ", ".join(capture.source_names.values())
    return RuleSource(names, read_capture(capture), {}, address_ranges(addresses), warnings)


def _addresses_from_flags(options: dict[str, Any]) -> tuple[str, ...]:
    return (
        *parse_one_address_per_family("--node-ip", options["node_ip"]),
        *parse_addresses("--local-address", options["local_address"]),
    )


def _rendered_source(options: dict[str, Any]) -> RuleSource:
    config = config_from_options(options)
    changes = read_manifests(options["paths"])
    knft = KnftInput(changes, config, parse_addresses("--local-address", options["local_address"]))
    addresses, knft_rules = knft.node_addresses(), knft.rules()
    if options["backend"] == "nftables":
        return RuleSource("knft, rendered", knft_rules, knft_rules, addresses, knft.warnings())
    mode = Mode(options["backend"])
    rules, warnings = kube_proxy_rules(changes, kube_proxy_options(mode, options))
    name = f"kube-proxy in mode {mode.value}, rendered"
    return RuleSource(name, rules, knft_rules, addresses, (*knft.warnings(), *warnings))


def _live_source(options: dict[str, Any]) -> RuleSource:
    from knft.comparison.entries import entries_of_client  # noqa: PLC0415 - netlink
    from knft.comparison.live import read_live_knft  # noqa: PLC0415 - netlink

    found = read_live_knft()
    if not found.rules:
        msg = "this machine has no table of knft: name manifests with -f, or captures such as --iptables-save"
        raise CaptureError(msg)
    node_addresses = address_ranges((*found.addresses, *_addresses_from_flags(options)))
    return RuleSource("knft's tables on this machine", found.rules, {}, node_addresses, find_entries=entries_of_client)
