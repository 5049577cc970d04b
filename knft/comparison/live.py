"""Reads the sides of a comparison on this machine: kube-proxy's rules, and knft's tables or rendered rules."""

import re
from collections.abc import Callable, Iterator
from functools import reduce

from msgspec import Struct
from msgspec.structs import replace

from knft.comparison.captures import SAVE_PROGRAMS, VERSIONS, Capture, Rules, read_capture
from knft.comparison.machine import MachineState, read_knft_tables, read_machine
from knft.comparison.sides import KnftInput, Sides, address_ranges, mode_of_rules
from knft.config import Config
from knft.decide.node_problems import cluster_cidr_problem
from knft.errors import CaptureError
from knft.families import IpVersion
from knft.interpret import nftables
from knft.interpret.compare.edit import join_rule_sets, with_chain_prefix
from knft.interpret.compare.foreign import foreign_rules
from knft.interpret.owned_chains import is_owned_chain
from knft.interpret.ranges import Ranges
from knft.interpret.rules import RuleSet
from knft.kernel.probe import require_privilege
from knft.kernel.process import WorkerProcess
from knft.model.objects import ObjectChange

ManifestReader = Callable[[], tuple[ObjectChange, ...]]
"""Reads the manifests that the command line names."""

_THIS_MACHINE = "on this machine"
_ONLY_NFT = re.compile(r"^# Table `(\w+)' is incompatible.*\n?", re.MULTILINE)
"""iptables-nft-save prints this line for a table with rules that only nft can show."""


class LiveKnft(Struct, frozen=True):
    """knft's tables in this machine's kernel, and the addresses of its interfaces."""

    rules: Rules
    addresses: frozenset[str]


def read_live_knft() -> LiveKnft:
    """Return knft's tables in the kernel; raise UnsupportedError without root, or CaptureError."""
    require_privilege()
    with WorkerProcess() as library:
        texts, addresses = read_knft_tables(library)
    return LiveKnft(_read_nft_tables(texts), addresses)


class LiveSides:
    """kube-proxy's rules in the kernel, and knft's: rendered from manifests if there are any, else in the kernel."""

    def __init__(self, config: Config | None, read_manifests: ManifestReader) -> None:
        """Read the manifests, if ``config`` is set; raise UnsupportedError or SourceError."""
        require_privilege()
        self._config = config
        self._read_manifests = read_manifests
        self._library = WorkerProcess()
        self._changes: tuple[ObjectChange, ...] = ()
        self.reload_manifests()

    def reload_manifests(self) -> None:
        """Read the manifests again, if there are any. If that raises SourceError, the previous objects stay."""
        if self._config is not None:
            self._changes = self._read_manifests()

    def read_machine(self) -> MachineState:
        """Return the kernel's rules, sets, virtual servers and addresses; raise CaptureError."""
        return read_machine(self._library)

    def read(self) -> Sides:
        """Return both sides; raise CaptureError."""
        return self.sides_of(self.read_machine())

    def sides_of(self, machine: MachineState) -> Sides:
        """Return both sides for a state of the machine; raise CaptureError."""
        found = _MachineRules(machine)
        knft = _read_nft_tables(machine.knft_tables)
        if self._config is None:
            if not found.has_kube_proxy or not knft:
                if found.has_kube_proxy:
                    msg = "this machine has no knft table; pass -f to compare kube-proxy's rules with rendered rules"
                elif knft:
                    msg = "this machine has no kube-proxy rules; pass -f to compare knft's tables with rendered rules"
                else:
                    msg = "this machine has no kube-proxy rules and no knft table to compare"
                raise CaptureError(msg)
            return found.sides(knft, f"knft {_THIS_MACHINE}")
        knft_input = KnftInput(self._changes, self._config, tuple(machine.addresses))
        rendered, difference_warning = knft_input.rendered(), cluster_cidr_problem(self._config)
        if found.has_kube_proxy:
            warnings = knft_input.warnings_beside_kube_proxy(rendered)
            sides = found.sides(rendered.rules, "knft")
            return replace(sides, object_warnings=warnings, difference_warning=difference_warning)
        if not knft:
            msg = "this machine has no kube-proxy rules and no knft table to compare"
            raise CaptureError(msg)
        # kube-proxy has no rules here: compare knft's tables in the kernel with the rendered rules.
        return Sides(
            mode=None,
            left_name=f"knft {_THIS_MACHINE}",
            left={version: join_rule_sets(rules, found.foreign[version]) for version, rules in knft.items()},
            right=rendered.rules,
            node_addresses=found.node_addresses,
            foreign=found.foreign,
            right_name="knft, rendered",
            warnings=found.warnings,
            object_warnings=knft_input.warnings(),
            difference_warning=difference_warning,
            labels=("knft (live)", "knft (rendered)"),
        )


class _MachineRules:
    """The kernel's rules without knft's tables: ``rules`` holds all of them, ``foreign`` those of other programs."""

    def __init__(self, machine: MachineState) -> None:
        self._machine = machine
        addresses = machine.addresses - frozenset(machine.ipvs_addresses)
        self.node_addresses: dict[IpVersion, Ranges] = address_ranges(addresses)
        self.rules: Rules = {}
        self.foreign: Rules = {}
        self._backends_of_kube_proxy: list[str] = []
        self._skipped: list[str] = []
        for version in VERSIONS:
            parts = list(self._parts(version))
            empty = RuleSet(version=version)
            self.rules[version] = reduce(join_rule_sets, (rules for rules, _ in parts), empty)
            self.foreign[version] = reduce(join_rule_sets, (rules for _, rules in parts), empty)

    @property
    def has_kube_proxy(self) -> bool:
        """Whether kube-proxy has rules or the device kube-ipvs0 on this machine."""
        return bool(self._backends_of_kube_proxy or self._machine.kube_proxy_tables or self._machine.ipvs_addresses)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings: rules that were not read, and kube-proxy's chains that exist in several backends."""
        machine = self._machine
        found = [f"{program} is not installed; its rules were not read" for program in machine.missing_programs]
        found += [
            f"{name}: not read, since it has rules that only nft can show; "
            "to compare them, pass the output of `nft -j list ruleset` with --nft-json"
            for name in self._skipped
        ]
        families = [name.startswith("ip6") for name in self._backends_of_kube_proxy]
        if len(families) > len(set(families)):
            backends = " and ".join(self._backends_of_kube_proxy)
            found.append(
                f"kube-proxy's chains are in {backends}, and the kernel runs all of them; "
                "remove them with `knft cleanup --kube-proxy`, and start kube-proxy again if you still use it"
            )
        if machine.unread_tables:
            found.append(
                f"tables of other programs were not read: {', '.join(machine.unread_tables)}; "
                "to compare them, pass the output of `nft -j list ruleset` with --nft-json"
            )
        return tuple(found)

    def sides(self, knft: Rules, knft_name: str) -> Sides:
        """Return these rules and knft's as the sides of a comparison."""
        return Sides(
            mode=mode_of_rules(self.rules),
            left_name=f"kube-proxy {_THIS_MACHINE} ({', '.join(self._locations())})",
            left=self.rules,
            right=knft,
            node_addresses=self.node_addresses,
            foreign=self.foreign,
            right_name=knft_name,
            warnings=self.warnings,
            labels=("kube-proxy (live)", "knft" if knft_name == "knft" else "knft (live)"),
        )

    def _locations(self) -> Iterator[str]:
        yield from self._backends_of_kube_proxy
        if self._machine.virtual_servers:
            yield "IPVS"
        yield from (f"table ip{'' if version == 4 else 6} kube-proxy" for version in self._machine.kube_proxy_tables)  # noqa: PLR2004

    def _parts(self, version: IpVersion) -> Iterator[tuple[RuleSet, RuleSet]]:
        """Yield each source's rule set and its foreign part.

        kube-proxy's chains may be in two backends of iptables: those of the second get the backend's name as a prefix.
        """
        named = [*self._read_iptables(version)]
        named.sort(key=lambda item: not _has_chains(item[1]))
        for number, (name, rules) in enumerate(named):
            if _has_chains(rules):
                self._backends_of_kube_proxy.append(name)
            rename: Callable[[RuleSet], RuleSet] = (lambda it: it) if number == 0 else _chain_prefixer(name)
            yield rename(rules), rename(foreign_rules(rules, self.node_addresses[version]))
        servers = self._read_servers(version)
        yield servers, foreign_rules(servers, self.node_addresses[version])
        if version in self._machine.kube_proxy_tables:
            rules = _read_nft_tables(self._machine.kube_proxy_tables)[version]
            yield rules, foreign_rules(rules, self.node_addresses[version])

    def _read_iptables(self, version: IpVersion) -> Iterator[tuple[str, RuleSet]]:
        program = SAVE_PROGRAMS[version].removesuffix("-save")
        for name, text in self._machine.saved_rules.items():
            if name.partition("-")[0] != program or "\nCOMMIT" not in text:
                continue
            shown = text
            if ":KUBE-SERVICES " not in text:
                self._skipped += [f"{name}, table {table}" for table in _ONLY_NFT.findall(text)]
                shown = _ONLY_NFT.sub("", text)
            names = {SAVE_PROGRAMS[version]: f"{name}-save", "ipset": "ipset save"}
            capture = Capture({version: shown}, self._machine.ipsets, source_names=names)
            yield name, read_capture(capture)[version]

    def _read_servers(self, version: IpVersion) -> RuleSet:
        servers = self._machine.virtual_servers
        capture = Capture(
            {version: ""},
            servers=servers,
            ipvs_addresses=self._machine.ipvs_addresses,
            source_names={"ipvsadm": "ipvsadm -Sn"},
        )
        return read_capture(capture)[version]


def _chain_prefixer(name: str) -> Callable[[RuleSet], RuleSet]:
    return lambda rules: with_chain_prefix(rules, name)


def _has_chains(rules: RuleSet) -> bool:
    return any(is_owned_chain(name) for name in rules.chains)


def _read_nft_tables(texts: dict[IpVersion, str]) -> Rules:
    return {version: nftables.read(text, version) for version, text in texts.items()}
