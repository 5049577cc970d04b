"""``knft trace``: prints the path of a packet through a rule set, without sending it."""

from typing import Any

import click
import msgspec
from msgspec import Struct

from knft.cli.capture_files import capture_from_options
from knft.cli.kube_proxy_options import kube_proxy_options
from knft.cli.manifests import read_manifests
from knft.cli.options import config_from_options
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
from knft.interpret.ranges import Ranges, subtract
from knft.interpret.trace import Trace, TracedClient, Tracer
from knft.protocols import PROTOCOL_NAMES
from knft.proxy_mode import Mode


class RuleSource(Struct, frozen=True):
    """The rules to trace with their name, rule sets that name the Services, and the node's addresses."""

    name: str
    rules: Rules
    rules_with_service_names: Rules
    node_addresses: dict[IpVersion, Ranges]
    warnings: tuple[str, ...] = ()


def trace(*, output: str, **options: Any) -> None:  # noqa: ANN401 - click's values
    """Print the trace; raise UsageError, SourceError, CaptureError or KernelError."""
    query = parse_query(options)
    source = _rule_source(options)
    found = trace_packet(query, source)
    click.echo(msgspec.json.encode(found) + b"\n" if output == "json" else format_trace(found), nl=False)


def trace_packet(query: PacketQuery, source: RuleSource) -> Trace:
    """Return the packet's path; raise CaptureError or UsageError."""
    version = query.version
    rules, node_addresses = source.rules.get(version), source.node_addresses[version]
    if rules is None:
        msg = f"{source.name}: no IPv{version} rules, but --to is an IPv{version} address"
        raise CaptureError(msg)
    # An address that another interface has too is an address of the node without kube-ipvs0 as well.
    rules = msgspec.structs.replace(rules, ipvs_addresses=subtract(rules.ipvs_addresses, node_addresses))
    packet = packet_class(query, rules, node_addresses)
    tracer = Tracer(rules, node_addresses)
    client = _client(query, packet, tracer)
    to = query.to
    listed = [one for one in (source.rules_with_service_names.get(version), rules) if one is not None]
    names = ServiceNames(listed)
    return Trace(
        rule_set=source.name,
        family=f"IPv{version}",
        source=formatting.format_address(version, query.source),
        sender=packet.origin,
        interface=query.interface or "",
        destination=f"{formatting.format_socket(version, to.address, to.port)}/{PROTOCOL_NAMES[query.protocol]}",
        service=names.name(to.address, query.protocol, to.port, is_local=packet.is_local),
        client=client.text,
        ways=tracer.alternatives(packet, client),
        remarks=source.warnings,
    )


def _client(query: PacketQuery, packet: PacketClass, tracer: Tracer) -> TracedClient:
    endpoint = query.remembered
    if endpoint is None:
        return tracer.client_in_rule_set(packet, query.source)
    found = tracer.client_sent_to(packet, endpoint.address, endpoint.port)
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
    warnings = () if addresses else ("no address of the node is known; name its addresses with --local-address",)
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
        return RuleSource("knft, rendered", knft_rules, knft_rules, addresses)
    mode = Mode(options["backend"])
    rules, warnings = kube_proxy_rules(changes, kube_proxy_options(mode, options))
    return RuleSource(f"kube-proxy in mode {mode.value}, rendered", rules, knft_rules, addresses, warnings)


def _live_source(options: dict[str, Any]) -> RuleSource:
    from knft.comparison.live import read_live_knft  # noqa: PLC0415 - netlink

    found = read_live_knft()
    if not found.rules:
        msg = "this machine has no table of knft: name manifests with -f, or captures such as --iptables-save"
        raise CaptureError(msg)
    node_addresses = address_ranges((*found.addresses, *_addresses_from_flags(options)))
    return RuleSource("knft's tables on this machine", found.rules, {}, node_addresses)
