"""What is in force on this machine, as sides of a comparison: kube-proxy's rules, and knft's."""

import re
from collections.abc import Callable, Iterator
from functools import reduce
from typing import Any

from msgspec import Struct

from knft.cli.captured import SAVE_PROGRAMS, VERSIONS, Texts, rule_sets
from knft.cli.machine import Machine, look, look_at_knft
from knft.cli.manifests import read_manifests
from knft.cli.options import config_from_options
from knft.cli.rendered import own_rules
from knft.cli.sides import Sides, mode_of, own_ranges
from knft.errors import CaptureError
from knft.interpret import nftables
from knft.interpret.compare.edit import joined, renamed
from knft.interpret.compare.foreign import foreign, is_proxys
from knft.interpret.ranges import Ranges
from knft.interpret.rules import IpVersion, RuleSet
from knft.kernel.probe import require_privilege
from knft.kernel.process import LibraryProcess
from knft.model.objects import Change

Rules = dict[IpVersion, RuleSet]

_HERE = "on this machine"
_ONLY_NFT = re.compile(r"^# Table `(\w+)' is incompatible.*\n?", re.MULTILINE)
"""What iptables-nft-save says of a table that has rules of nft's own: it cannot show it."""


class LiveKnft(Struct, frozen=True):
    """knft's tables of this machine, and the machine's addresses."""

    rules: Rules
    addresses: frozenset[str]


def live_knft() -> LiveKnft:
    """Return what knft has in force; raise UnsupportedError without privilege, or CaptureError."""
    require_privilege()
    with LibraryProcess() as library:
        texts, addresses = look_at_knft(library)
    return LiveKnft(_of_nftables(texts), addresses)


class LiveSides:
    """What is in force here beside what manifests say; or, without manifests, beside what knft has in force."""

    def __init__(self, options: dict[str, Any]) -> None:
        """Take in the manifests; raise UnsupportedError, UsageError or SourceError."""
        require_privilege()
        self._options = options
        self._library = LibraryProcess()
        self._changes: tuple[Change, ...] = ()
        self.read_manifests()

    def read_manifests(self) -> None:
        """Read the manifests anew, if there are any; what was read before stays where that fails."""
        if self._options["paths"]:
            self._config = config_from_options(self._options)
            self._changes = read_manifests(self._options["paths"])

    def look(self) -> Machine:
        """Return what is in force; raise CaptureError."""
        return look(self._library)

    def now(self) -> Sides:
        """Return both sides as they are; raise CaptureError."""
        return self.of(self.look())

    def of(self, machine: Machine) -> Sides:
        """Return both sides, given what is in force; raise CaptureError."""
        found = _InForce(machine)
        knft = _of_nftables(machine.knft)
        if not self._options["paths"]:
            if not found.is_there or not knft:
                missing = "rules of kube-proxy" if not found.is_there else "table of knft's"
                msg = f"there is nothing to compare: this machine has no {missing}; -f renders knft's from manifests"
                raise CaptureError(msg)
            return found.beside(knft, f"knft {_HERE}")
        rendered = own_rules(self._changes, self._config, machine.addresses)
        if found.is_there:
            return found.beside(rendered, "knft")
        if not knft:
            msg = "there is nothing to compare with: this machine has rules neither of kube-proxy nor of knft"
            raise CaptureError(msg)
        # kube-proxy is gone, and what is in force is knft's own.
        return Sides(
            mode=None,
            name=f"knft {_HERE}",
            kube_proxy={version: joined(rules, found.foreign[version]) for version, rules in knft.items()},
            knft=rendered,
            own=found.own,
            foreign=found.foreign,
            knft_name="knft, rendered",
            remarks=found.remarks,
        )


class _InForce:
    """What is in force but for knft's tables: all of it, and what of it is not kube-proxy's."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        own = machine.addresses - frozenset(machine.device)
        self.own: dict[IpVersion, Ranges] = own_ranges(own)
        self.rules: Rules = {}
        self.foreign: Rules = {}
        self._backends: list[str] = []
        self._skipped: list[str] = []
        for version in VERSIONS:
            parts = list(self._parts(version))
            empty = RuleSet(version=version)
            self.rules[version] = reduce(joined, (rules for rules, _ in parts), empty)
            self.foreign[version] = reduce(joined, (rules for _, rules in parts), empty)

    @property
    def is_there(self) -> bool:
        """Whether any of it is kube-proxy's."""
        return bool(self._backends or self._machine.kube_proxy or self._machine.device)

    @property
    def remarks(self) -> tuple[str, ...]:
        """What is to be said about the look."""
        machine = self._machine
        found = [f"{program} is not installed: what it would show was not read" for program in machine.absent]
        found += [f"{name}: it has rules that only nft can show; they were not read" for name in self._skipped]
        families = [name.startswith("ip6") for name in self._backends]
        if len(families) > len(set(families)):
            found.append(f"kube-proxy's chains are in {' and '.join(self._backends)}: all are in force")
        if machine.unread:
            found.append(f"tables that are neither kube-proxy's nor knft's were not read: {', '.join(machine.unread)}")
        return tuple(found)

    def beside(self, knft: Rules, name: str) -> Sides:
        """Return kube-proxy's side beside knft's."""
        return Sides(
            mode=mode_of(self.rules),
            name=f"kube-proxy {_HERE} ({', '.join(self._places())})",
            kube_proxy=self.rules,
            knft=knft,
            own=self.own,
            foreign=self.foreign,
            knft_name=name,
            remarks=self.remarks,
        )

    def _places(self) -> Iterator[str]:
        yield from self._backends
        if self._machine.servers:
            yield "IPVS"
        yield from (f"table ip{'' if version == 4 else 6} kube-proxy" for version in self._machine.kube_proxy)  # noqa: PLR2004

    def _parts(self, version: IpVersion) -> Iterator[tuple[RuleSet, RuleSet]]:
        """Yield rule sets, and what is foreign of each; kube-proxy's have the names that they should have."""
        named = [*self._of_iptables(version)]
        named.sort(key=lambda item: not _has_chains(item[1]))
        for number, (name, rules) in enumerate(named):
            if _has_chains(rules):
                self._backends.append(name)
            call: Callable[[RuleSet], RuleSet] = (lambda it: it) if number == 0 else _in_front(name)
            yield call(rules), call(foreign(rules, self.own[version]))
        servers = self._servers(version)
        yield servers, foreign(servers, self.own[version])
        if version in self._machine.kube_proxy:
            rules = _of_nftables(self._machine.kube_proxy)[version]
            yield rules, foreign(rules, self.own[version])

    def _of_iptables(self, version: IpVersion) -> Iterator[tuple[str, RuleSet]]:
        program = SAVE_PROGRAMS[version].removesuffix("-save")
        for name, text in self._machine.saved.items():
            if name.partition("-")[0] != program or "\nCOMMIT" not in text:
                continue
            shown = text
            if ":KUBE-SERVICES " not in text:
                self._skipped += [f"{name}, table {table}" for table in _ONLY_NFT.findall(text)]
                shown = _ONLY_NFT.sub("", text)
            names = {SAVE_PROGRAMS[version]: f"{name}-save", "ipset": "ipset save"}
            texts = Texts({version: shown}, self._machine.sets, names=names)
            yield name, rule_sets(texts)[version]

    def _servers(self, version: IpVersion) -> RuleSet:
        servers = self._machine.servers
        texts = Texts({version: ""}, servers=servers, bound=self._machine.device, names={"ipvsadm": "ipvsadm -Sn"})
        return rule_sets(texts)[version]


def _in_front(name: str) -> Callable[[RuleSet], RuleSet]:
    return lambda rules: renamed(rules, name)


def _has_chains(rules: RuleSet) -> bool:
    return any(is_proxys(name) for name in rules.chains)


def _of_nftables(texts: dict[IpVersion, str]) -> Rules:
    return {version: nftables.read(text, version) for version, text in texts.items()}
