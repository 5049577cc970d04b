"""The two sides of a comparison, kube-proxy's and knft's: rendered for the same objects, or captured."""

import ipaddress
from collections.abc import Iterable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from knft.cli.captured import VERSIONS, captured_texts, rule_sets
from knft.cli.legacy_clusters import own_addresses
from knft.cli.manifests import read_manifests
from knft.cli.options import config_from_options
from knft.cli.rendered import legacy_rules, own_rules
from knft.config import parse_any_addresses
from knft.errors import UsageError
from knft.interpret.compare.foreign import foreign
from knft.interpret.ranges import LOOPBACK, Ranges, ranges, without
from knft.interpret.rules import IpVersion, RuleSet
from knft.model.objects import Change
from knft.takeover.names import Mode


class Sides(Struct, frozen=True, kw_only=True):
    """What is compared: kube-proxy's rule sets and knft's, by family, and the addresses that the node has.

    ``mode`` is kube-proxy's, None where both sides are knft's. ``foreign`` is what is neither's and in force on the
    left: it stays, whoever serves Services. ``remarks`` are about what was not read.
    """

    mode: Mode | None
    name: str
    kube_proxy: dict[IpVersion, RuleSet]
    knft: dict[IpVersion, RuleSet]
    own: dict[IpVersion, Ranges]
    foreign: dict[IpVersion, RuleSet] = {}
    knft_name: str = "knft"
    remarks: tuple[str, ...] = ()


def sides(options: dict[str, Any]) -> Sides:
    """Return what the command line names; raise UsageError, SourceError or CaptureError."""
    if not options["paths"]:
        msg = "-f: knft's rules are rendered from manifests, so name some (or take what is in force, with --live)"
        raise UsageError(msg)
    texts = captured_texts(options)
    changes = read_manifests(options["paths"])
    if texts is None:
        return rendered_sides(Mode(options["against"]), changes, options)
    own, knft = rendered_knft(changes, options)
    captured = {version: _apart(rules, own[version]) for version, rules in rule_sets(texts).items()}
    return Sides(
        mode=mode_of(captured),
        name=", ".join(name for program, name in texts.names.items() if program not in ("ipset", "ipvsadm")),
        kube_proxy=captured,
        knft=knft,
        own=own,
        foreign={version: foreign(rules, own[version]) for version, rules in captured.items()},
    )


def _apart(rules: RuleSet, own: Ranges) -> RuleSet:
    """Return a rule set in which what the node has anyway is not there because of kube-proxy's device."""
    return replace(rules, bound=without(rules.bound, own))


def rendered_sides(mode: Mode, changes: tuple[Change, ...], options: dict[str, Any]) -> Sides:
    """Return kube-proxy in a mode, and knft, for the same objects; raise UsageError."""
    own, knft = rendered_knft(changes, options)
    legacy = legacy_rules(mode.value, changes, {**options, "family": None})
    return Sides(mode=mode, name=f"kube-proxy in mode {mode.value}", kube_proxy=legacy, knft=knft, own=own)


def rendered_knft(
    changes: tuple[Change, ...], options: dict[str, Any]
) -> tuple[dict[IpVersion, Ranges], dict[IpVersion, RuleSet]]:
    """Return the node's addresses, as far as objects and flags say them, and knft's rule sets for some objects."""
    config = config_from_options(options)
    more = parse_any_addresses("--local-address", options["local_address"])
    addresses = (*own_addresses(changes, config), *more)
    return own_ranges(addresses), own_rules(changes, config, more)


def own_ranges(addresses: Iterable[str]) -> dict[IpVersion, Ranges]:
    """Return a node's addresses by family, loopback ones among them."""
    parsed = tuple(map(ipaddress.ip_address, addresses))
    found: dict[IpVersion, Ranges] = {}
    for version in VERSIONS:
        pairs = [(int(address), int(address)) for address in parsed if address.version == version]
        found[version] = ranges((*pairs, *LOOPBACK[version]))
    return found


def mode_of(captured: dict[IpVersion, RuleSet]) -> Mode:
    """Return the mode of kube-proxy that a capture is of."""
    if any(rules.servers for rules in captured.values()):
        return Mode.IPVS
    has_chains = any("nat KUBE-SERVICES" in rules.chains for rules in captured.values())
    return Mode.IPTABLES if has_chains else Mode.NFTABLES
