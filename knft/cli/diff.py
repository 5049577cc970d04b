"""``knft diff``: what would become of packets if knft took over from kube-proxy, or did from what a capture shows."""

import ipaddress
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import click
from msgspec import Struct

from knft.cli.captured import SAVE_PROGRAMS, VERSIONS, Texts, as_text, read_file, rule_sets
from knft.cli.legacy_clusters import own_addresses
from knft.cli.manifests import read_manifests
from knft.cli.options import config_from_options
from knft.cli.rendered import legacy_rules, own_rules
from knft.config import parse_any_addresses
from knft.errors import UsageError
from knft.interpret.compare.classes import Classes
from knft.interpret.compare.comparison import Comparison, Progress
from knft.interpret.compare.edit import joined
from knft.interpret.compare.foreign import foreign
from knft.interpret.compare.intent import Intended
from knft.interpret.compare.meant_of_ipvs import node_addresses
from knft.interpret.compare.report import FamilyReport, Report, summarise
from knft.interpret.compare.services import ServiceNames
from knft.interpret.constants import Constants
from knft.interpret.ranges import LOOPBACK, Ranges, ranges
from knft.interpret.rules import IpVersion, RuleSet
from knft.model.objects import Change
from knft.takeover.names import Mode

EQUAL, DIFFERENT = 0, 1


class Sides(Struct, frozen=True):
    """What is compared: kube-proxy's rule sets and knft's, by family, and the addresses that the node has."""

    mode: Mode
    name: str
    kube_proxy: dict[IpVersion, RuleSet]
    knft: dict[IpVersion, RuleSet]
    own: dict[IpVersion, Ranges]
    captured: bool


def diff(output: str, **options: Any) -> int:  # noqa: ANN401 - click's values
    """Compare both sides, print the report, and return the exit status."""
    sides = _sides(options)
    with _progress() as progress:
        report = compare(sides, progress)
    click.echo(_printed(report, output), nl=False)
    return EQUAL if report.is_equal else DIFFERENT


def _printed(report: Report, output: str) -> str:
    from knft import present  # noqa: PLC0415 - heavy

    return {"table": present.table, "json": present.json, "html": present.html}[output](report)


def _sides(options: dict[str, Any]) -> Sides:
    """Return what is to be compared; raise UsageError, SourceError or CaptureError."""
    texts = _texts(options)
    changes = read_manifests(options["paths"])
    if texts is None:
        return rendered_sides(Mode(options["against"]), changes, options)
    addresses, knft = _knft(changes, options)
    captured = rule_sets(texts)
    return Sides(_mode(captured), ", ".join(texts.names.values()), captured, knft, addresses, captured=True)


def rendered_sides(mode: Mode, changes: tuple[Change, ...], options: dict[str, Any]) -> Sides:
    """Return knft and kube-proxy in a mode, for the same objects; raise UsageError."""
    addresses, knft = _knft(changes, options)
    legacy = legacy_rules(mode.value, changes, {**options, "family": None})
    return Sides(mode, f"kube-proxy in mode {mode.value}", legacy, knft, addresses, captured=False)


def _knft(
    changes: tuple[Change, ...], options: dict[str, Any]
) -> tuple[dict[IpVersion, Ranges], dict[IpVersion, RuleSet]]:
    """Return the node's addresses, and knft's rule sets there."""
    config = config_from_options(options)
    more = parse_any_addresses("--local-address", options["local_address"])
    addresses = (*own_addresses(changes, config), *more)
    return {version: _own(addresses, version) for version in VERSIONS}, own_rules(changes, config, more)


def _own(addresses: Iterable[str], version: IpVersion) -> Ranges:
    parsed = (ipaddress.ip_address(address) for address in addresses)
    pairs = [(int(address), int(address)) for address in parsed if address.version == version]
    return ranges((*pairs, *LOOPBACK[version]))


def _texts(options: dict[str, Any]) -> Texts | None:
    """Return the captures that are named, None where none is."""
    saves: dict[IpVersion, str] = {4: options["iptables_save"], 6: options["ip6tables_save"]}
    flags: dict[IpVersion, str] = {4: "--iptables-save", 6: "--ip6tables-save"}
    given = {version: path for version, path in saves.items() if path is not None}
    nft = options["nft_json"]
    for flag in ("ipset_save", "ipvsadm_save"):
        if options[flag] is not None and not given:
            msg = f"--{flag.replace('_', '-')}: it says nothing without --iptables-save or --ip6tables-save"
            raise UsageError(msg)
    if not given and nft is None:
        return None
    names = {SAVE_PROGRAMS[version]: f"{flags[version]} {path}" for version, path in given.items()}
    return Texts(
        rules={version: as_text(flags[version], path) for version, path in given.items()},
        sets="" if options["ipset_save"] is None else as_text("--ipset-save", options["ipset_save"]),
        servers="" if options["ipvsadm_save"] is None else as_text("--ipvsadm-save", options["ipvsadm_save"]),
        nftables=None if nft is None else read_file("--nft-json", nft),
        names={**names, **({} if nft is None else {"nft": f"--nft-json {nft}"})},
    )


def _mode(captured: dict[IpVersion, RuleSet]) -> Mode:
    """Return the mode of kube-proxy that a capture is of."""
    if any(rules.servers for rules in captured.values()):
        return Mode.IPVS
    has_chains = any("nat KUBE-SERVICES" in rules.chains for rules in captured.values())
    return Mode.IPTABLES if has_chains else Mode.NFTABLES


@contextmanager
def _progress() -> Iterator[Progress]:
    """Show how far a comparison is, to people alone."""
    if not sys.stderr.isatty():
        yield lambda _, __: None
        return
    with click.progressbar(length=1, label="comparing", file=sys.stderr) as bar:

        def show(done: int, total: int) -> None:
            bar.length = total
            bar.update(done - bar.pos)

        yield show


def compare(sides: Sides, progress: Progress) -> Report:
    """Return what differs between both sides."""
    begun = time.monotonic()
    families = [_compare_family(version, sides, progress) for version in sides.kube_proxy if version in sides.knft]
    return Report(sides.name, "knft", families, seconds=time.monotonic() - begun)


def _compare_family(version: IpVersion, sides: Sides, progress: Progress) -> FamilyReport:
    comparison, names = comparison_of(version, sides)
    return summarise(version, comparison.counts, comparison.differences(progress), names)


def comparison_of(version: IpVersion, sides: Sides) -> tuple[Comparison, ServiceNames]:
    """Return what goes through all differences of one family, and who is who."""
    left, right, own = sides.kube_proxy[version], sides.knft[version], sides.own[version]
    if sides.captured:
        # What others have on the node stays there, whoever serves Services.
        right = joined(foreign(left, own), right)
    is_ipvs = sides.mode is Mode.IPVS
    if is_ipvs:
        own = ranges((*own, *node_addresses(left)))
    classes = Classes(version, Constants((left, right)), own, bound=left.bound if is_ipvs else None)
    comparison = Comparison(left, right, classes, own, Intended(sides.mode, left, right))
    return comparison, ServiceNames((right, left))
