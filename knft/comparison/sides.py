"""The two sides of a comparison, kube-proxy's rules and knft's: rendered for the same objects, or captured."""

import ipaddress
from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from knft.comparison.captures import VERSIONS, Capture, Rules, read_capture
from knft.comparison.contested import contested_frontends
from knft.comparison.kube_proxy_inputs import KubeProxyOptions, interface_addresses
from knft.comparison.node_name import node_warnings
from knft.comparison.rendered import RenderedNode, kube_proxy_rules, render_node
from knft.config import Config
from knft.decide.node_problems import cluster_cidr_problem
from knft.families import IpVersion
from knft.interpret.compare.foreign import foreign_rules
from knft.interpret.ranges import LOOPBACK, Ranges, ranges, subtract
from knft.interpret.rules import RuleSet
from knft.model.objects import ObjectChange
from knft.proxy_mode import Mode
from knft_compat import iptables, ipvs, nftables


class Sides(Struct, frozen=True, kw_only=True):
    """The rule sets of both sides by IP version, and the addresses of the node.

    ``left`` holds kube-proxy's rules and ``mode`` is kube-proxy's mode. If kube-proxy has no rules, ``left`` holds
    knft's tables in the kernel and ``mode`` is None. ``right`` holds knft's rules. ``foreign`` holds the rules of other
    programs on the left: they stay in the kernel when knft replaces kube-proxy. ``warnings`` name skipped rules and
    Services, and ``object_warnings`` a node's name that is probably wrong and contested frontends.
    ``difference_warning`` is the likely cause of differences, empty if none is known. ``source_names`` maps the name
    of a tool to the file or command that printed the rules (``Capture``). ``labels`` are short names of both sides.
    """

    mode: Mode | None
    left_name: str
    left: Rules
    right: Rules
    node_addresses: dict[IpVersion, Ranges]
    foreign: Rules = {}
    right_name: str = "knft"
    warnings: tuple[str, ...] = ()
    object_warnings: tuple[str, ...] = ()
    difference_warning: str = ""
    source_names: dict[str, str] = {}
    labels: tuple[str, str] = ("kube-proxy", "knft")


class KnftInput(Struct, frozen=True):
    """The input of knft's rules; ``local_addresses`` are node addresses that the Node object does not have."""

    changes: tuple[ObjectChange, ...]
    config: Config
    local_addresses: tuple[str, ...] = ()

    def node_addresses(self) -> dict[IpVersion, Ranges]:
        """Return the node's addresses that objects and flags name, and the loopback networks."""
        return address_ranges(self.named_addresses())

    def named_addresses(self) -> tuple[str, ...]:
        """Return the node's addresses that objects and flags name."""
        return (*interface_addresses(self.changes, self.config), *self.local_addresses)

    def warnings(self) -> tuple[str, ...]:
        """Return whether the node's name is probably wrong."""
        return tuple(node_warnings(self.config, self.changes))

    def rules(self) -> Rules:
        """Return knft's rule sets."""
        return self.rendered().rules

    def rendered(self) -> RenderedNode:
        """Return knft's rule sets, and the objects as knft tracks them."""
        return render_node(self.changes, self.config, self.local_addresses)

    def warnings_beside_kube_proxy(self, rendered: RenderedNode) -> tuple[str, ...]:
        """Return whether the node's name is probably wrong, and the frontends that kube-proxy may give to others."""
        return (*self.warnings(), *contested_frontends(rendered.losing_claims()))


def captured_sides(capture: Capture, knft: KnftInput) -> Sides:
    """Return a capture of kube-proxy's rules, and knft's rules; raise CaptureError."""
    node_addresses = knft.node_addresses()
    kube_proxy = {
        version: _without_node_addresses(rules, node_addresses[version])
        for version, rules in read_capture(capture).items()
    }
    names = [name for program, name in capture.source_names.items() if program not in ("ipset", "ipvsadm")]
    rendered = knft.rendered()
    return Sides(
        mode=mode_of_rules(kube_proxy),
        left_name=", ".join(names),
        left=kube_proxy,
        right=rendered.rules,
        node_addresses=node_addresses,
        foreign={version: foreign_rules(rules, node_addresses[version]) for version, rules in kube_proxy.items()},
        object_warnings=knft.warnings_beside_kube_proxy(rendered),
        difference_warning=cluster_cidr_problem(knft.config),
        source_names=capture.source_names,
        labels=("kube-proxy (captured)", "knft"),
    )


def _without_node_addresses(rules: RuleSet, node_addresses: Ranges) -> RuleSet:
    """Return the rule set without the addresses of kube-ipvs0 that other interfaces have too."""
    return replace(rules, ipvs_addresses=subtract(rules.ipvs_addresses, node_addresses))


_MODES = {iptables.Settings: Mode.IPTABLES, ipvs.Settings: Mode.IPVS, nftables.Settings: Mode.NFTABLES}


def rendered_sides(knft: KnftInput, kube_proxy: KubeProxyOptions) -> Sides:
    """Return kube-proxy's rules in the mode of ``kube_proxy.settings``, and knft's, for the same objects."""
    mode = _MODES[type(kube_proxy.settings)]
    found, rendered = kube_proxy_rules(knft.changes, kube_proxy), knft.rendered()
    return Sides(
        mode=mode,
        left_name=f"kube-proxy in mode {mode.value}",
        left=found.rules,
        right=rendered.rules,
        node_addresses=knft.node_addresses(),
        warnings=found.warnings,
        object_warnings=knft.warnings_beside_kube_proxy(rendered),
        difference_warning=cluster_cidr_problem(knft.config),
        labels=("kube-proxy (rendered)", "knft"),
    )


def address_ranges(addresses: Iterable[str]) -> dict[IpVersion, Ranges]:
    """Return addresses and the loopback networks as ranges, by IP version."""
    parsed = tuple(map(ipaddress.ip_address, addresses))
    found: dict[IpVersion, Ranges] = {}
    for version in VERSIONS:
        pairs = [(int(address), int(address)) for address in parsed if address.version == version]
        found[version] = ranges((*pairs, *LOOPBACK[version]))
    return found


def mode_of_rules(rules: Rules) -> Mode:
    """Return the mode of kube-proxy that made these rules."""
    if any(rule_set.servers for rule_set in rules.values()):
        return Mode.IPVS
    has_chains = any("nat KUBE-SERVICES" in rule_set.chains for rule_set in rules.values())
    return Mode.IPTABLES if has_chains else Mode.NFTABLES
