"""``knft trace``: a packet's way through a rule set, which nobody sends."""

from typing import Any

import click
import msgspec
from msgspec import Struct

from knft.cli.captured import captured_texts, rule_sets
from knft.cli.legacy_clusters import own_addresses
from knft.cli.manifests import read_manifests
from knft.cli.options import config_from_options
from knft.cli.packet import Asked, asked, packets
from knft.cli.rendered import legacy_rules, own_rules
from knft.cli.sides import own_ranges
from knft.cli.trace_text import as_text
from knft.config import parse_addresses, parse_any_addresses
from knft.errors import CaptureError, UsageError
from knft.interpret.compare import words
from knft.interpret.compare.classes import PROTOCOLS
from knft.interpret.compare.services import ServiceNames
from knft.interpret.outcomes import Packets
from knft.interpret.ranges import Ranges, without
from knft.interpret.rules import IpVersion, RuleSet
from knft.interpret.trace import Client, Trace, Tracer


class Source(Struct, frozen=True):
    """Where rules come from: their name, the rules, who has names for frontends, and the node's addresses."""

    name: str
    rules: dict[IpVersion, RuleSet]
    naming: dict[IpVersion, RuleSet]
    own: dict[IpVersion, Ranges]
    remarks: tuple[str, ...] = ()


def trace(*, output: str, **options: Any) -> None:  # noqa: ANN401 - click's values
    """Print the trace; raise UsageError, SourceError, CaptureError or KernelError."""
    question = asked(options)
    source = _source(options)
    found = follow(question, source)
    click.echo(msgspec.json.encode(found) + b"\n" if output == "json" else as_text(found), nl=False)


def follow(question: Asked, source: Source) -> Trace:
    """Return what becomes of a packet."""
    version = question.version
    rules, own = source.rules.get(version), source.own[version]
    if rules is None:
        msg = f"{source.name}: it has no rules of IPv{version}, the family of --to"
        raise CaptureError(msg)
    # What the node has anyway is not there because of kube-proxy's device.
    rules = msgspec.structs.replace(rules, bound=without(rules.bound, own))
    packet = packets(question, rules, own)
    tracer = Tracer(rules, own)
    client = _client(question, packet, tracer)
    to = question.to
    listed = [one for one in (source.naming.get(version), rules) if one is not None]
    names = ServiceNames(listed)
    return Trace(
        rule_set=source.name,
        family=f"IPv{version}",
        source=words.address(version, question.source),
        sender=packet.origin,
        interface=question.interface or "",
        destination=f"{words.socket(version, to.address, to.port)}/{PROTOCOLS[question.protocol]}",
        service=names.name(to.address, question.protocol, to.port, is_local=packet.is_local),
        client=client.said,
        ways=tracer.ways(packet, client),
        remarks=source.remarks,
    )


def _client(question: Asked, packet: Packets, tracer: Tracer) -> Client:
    endpoint = question.remembered
    if endpoint is None:
        return tracer.known(packet, question.source)
    found = tracer.remembered(packet, endpoint.address, endpoint.port)
    if found is None:
        where = words.socket(endpoint.version, endpoint.address, endpoint.port)
        msg = f"--remembered: no rule would remember that this client was sent to {where} for this frontend"
        raise UsageError(msg)
    return found


def _source(options: dict[str, Any]) -> Source:
    """Return the rules that the command line names: rendered, captured, or this machine's."""
    texts = captured_texts(options)
    if texts is None:
        return _rendered(options) if options["paths"] else _live(options)
    if options["paths"]:
        msg = "-f: the captured rules are traced; leave either -f or the captures out"
        raise UsageError(msg)
    said = _said_addresses(options)
    remarks = () if said else ("no address of the node is known: --local-address names them",)
    names = ", ".join(texts.names.values())
    return Source(names, rule_sets(texts), {}, own_ranges(said), remarks)


def _said_addresses(options: dict[str, Any]) -> tuple[str, ...]:
    return (
        *parse_addresses("--node-ip", options["node_ip"]),
        *parse_any_addresses("--local-address", options["local_address"]),
    )


def _rendered(options: dict[str, Any]) -> Source:
    config = config_from_options(options)
    changes = read_manifests(options["paths"])
    more = parse_any_addresses("--local-address", options["local_address"])
    own = own_ranges((*own_addresses(changes, config), *more))
    knft = own_rules(changes, config, more)
    if options["backend"] == "nftables":
        return Source("knft, rendered", knft, knft, own)
    mode = options["backend"]
    legacy = legacy_rules(mode, changes, {**options, "family": None})
    return Source(f"kube-proxy in mode {mode}, rendered", legacy, knft, own)


def _live(options: dict[str, Any]) -> Source:
    from knft.cli.live import live_knft  # noqa: PLC0415 - netlink

    found = live_knft()
    if not found.rules:
        msg = "this machine has no table of knft's: name manifests with -f, or captures such as --iptables-save"
        raise CaptureError(msg)
    own = own_ranges((*found.addresses, *_said_addresses(options)))
    return Source("knft's tables on this machine", found.rules, {}, own)
