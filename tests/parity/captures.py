"""``knft diff`` of the rules of a kube-proxy in the lab with those that knft renders for the same objects.

``DiffResult`` also tells whether ``knft diff`` reports an expected difference for a packet of the lab.
"""

import ipaddress
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from knft.cli.manifests import read_manifests
from knft.comparison.captures import Capture
from knft.comparison.compare import comparison_of
from knft.comparison.sides import KnftInput, Sides, captured_sides
from knft.families import IpVersion
from knft.interpret.compare.findings import NEW_CLIENT, Difference
from knft.interpret.compare.partition import Piece, outcome_shares, partition
from knft.interpret.mentioned_values import MentionedValues
from knft.interpret.outcomes import Disposition, Outcome, PacketFields, overlap
from knft.interpret.ranges import contains, intersection, single
from tests.parity.dial import Target
from tests.parity.nodes import KubeProxyNode, ParityNode
from tests.parity.packets import source_address
from tests.parity.predicted_results import allowed_kinds, refusals_of
from tests.parity.random_cluster import FIRST_NODE_PORT, Settings
from tests.support.knft_command import KNFT, NODE_FLAG
from tests.support.lab import plan
from tests.support.loaded_settings import load
from tests.support.packets.captured import node_addresses

_VERSIONS: tuple[IpVersion, ...] = (4, 6)
_PROTOCOLS = {"tcp": 6, "udp": 17}
_BRIDGE, _UPLINK = "cni0", "eth0"


def capture(node: KubeProxyNode) -> Capture:
    """Return what the tools of kube-proxy's mode print on a node."""
    if node.mode == "nftables":
        return Capture(nftables=node.namespace.run(["nft", "-j", "list", "ruleset"]).stdout.encode())
    programs: dict[IpVersion, str] = {4: "iptables-save", 6: "ip6tables-save"}
    return Capture({version: node.namespace.run([program]).stdout for version, program in programs.items()})


def sides(node: KubeProxyNode, objects: Path, settings: Settings) -> Sides:
    """Return kube-proxy's captured rules, and those that knft renders for a file of objects."""
    config = load("--manifests", str(objects.parent), *NODE_FLAG, *settings.flags).config
    knft = KnftInput(read_manifests((str(objects),)), config, node_addresses(node.namespace))
    return captured_sides(capture(node), knft)


class DiffResult:
    """The result of a comparison of both families: ``problems`` are the unexpected and undecided differences."""

    def __init__(self, compared: Sides) -> None:
        """Compare."""
        self.problems: list[str] = []
        self.expected: dict[IpVersion, list[Difference]] = {}
        self._interfaces: dict[IpVersion, set[str]] = {}
        for version in _VERSIONS:
            mentioned = MentionedValues((compared.left[version], compared.right[version]))
            self._interfaces[version] = set(mentioned.interfaces)
            comparison, names = comparison_of(version, compared)
            found = list(comparison.differences())
            self.expected[version] = [item for item in found if item.reasons]
            for item in found:
                if not item.reasons:
                    kind = "undecided" if item.is_undecided else "different"
                    name = names.name(item.packets.destination, item.packets.protocol, None, is_local=False)
                    self.problems.append(f"IPv{version} {kind}: {name or item.packets} {_shares(item.differing_piece)}")
            counts = comparison.counts
            if (counts.different or counts.undecided) and not self.problems:
                self.problems.append(f"IPv{version}: {counts}")

    def reasons(self, target: Target) -> frozenset[str]:
        """Return the names of the expected differences of a packet; none if both sides treat it equally."""
        return frozenset(reason for item, _ in self._covering(target) for reason in item.reasons)

    def names(self, target: Target) -> str:
        """Return the names of the expected differences of a packet in one text."""
        return " + ".join(repr(reason) for reason in sorted(self.reasons(target)))

    def is_visible(self, target: Target, *, has_any_endpoint: bool) -> bool:
        """Tell whether the two outcomes of a packet must give the lab's client different results.

        A packet that one side drops and the other leaves alone is lost in the lab on both sides. If the client has any
        one of the endpoints, as with session affinity, it only sees whether it gets an answer.
        """
        left, right = (refusals_of(side) for side in self.allowed(target))
        return any(_visible(piece, target) for _, piece in self._covering(target)) and not (
            has_any_endpoint and left == right
        )

    def allowed(self, target: Target) -> tuple[frozenset[str], frozenset[str]]:
        """Return the kinds of results that the expected differences of a packet allow, of kube-proxy and of knft."""
        pieces = [piece for _, piece in self._covering(target)]
        left = [path.outcome for piece in pieces for path in piece.left]
        right = [path.outcome for piece in pieces for path in piece.right]
        return _allowed(target, left), _allowed(target, right)

    def _covering(self, target: Target) -> Iterator[tuple[Difference, Piece]]:
        version: IpVersion = 6 if ":" in target.address else 4
        address = int(ipaddress.ip_address(target.address))
        origin, fields = _fields(target, self._interfaces[version])
        for item in self.expected[version]:
            packets = item.packets
            is_same = packets.origin == origin and packets.protocol == _PROTOCOLS[target.protocol]
            if is_same and item.client == NEW_CLIENT and contains(item.destination.ranges, address):
                for piece in _differing(item):
                    # A result that destinations share has the ports of the destination that was compared first.
                    ports = intersection(piece.fields.ports, packets.fields.ports) or packets.fields.ports
                    if overlap(piece.fields._replace(ports=ports), fields) is not None:
                        yield item, piece


def _allowed(target: Target, outcomes: Iterable[Outcome]) -> frozenset[str]:
    return frozenset(kind for outcome in outcomes for kind in allowed_kinds(target, outcome))


def _differing(item: Difference) -> Iterator[Piece]:
    if item.located_piece is not None:
        yield item.differing_piece
        return
    for piece in partition(*item.paths):
        if outcome_shares(piece.left) != outcome_shares(piece.right):
            yield piece


def _visible(piece: Piece, target: Target) -> bool:
    left, right = (frozenset(_result(path.outcome) for path in side) for side in (piece.left, piece.right))
    # Without a translation, the lab drops a packet to another host, and the node rejects UDP to itself.
    lost = "rejected" if target.protocol == "udp" and target.port >= FIRST_NODE_PORT else "dropped"
    return left != right and {*left, *right} != {lost, "untranslated"}


def _result(outcome: Outcome) -> Any:
    if outcome.disposition is Disposition.DELIVERED:
        return (outcome.address, outcome.port, outcome.source) if outcome.is_translated else "untranslated"
    return outcome.disposition.value


def _shares(piece: Piece) -> str:
    left, right = (sorted(str(_result(path.outcome)) for path in side) for side in (piece.left, piece.right))
    return f"kube-proxy {left}, knft {right}, {piece.fields}"


def _fields(target: Target, mentioned: set[str]) -> tuple[str, PacketFields]:
    is_node = target.client == plan.NODE.host
    interface = _BRIDGE if target.client.startswith(plan.NODE.pod_prefix) else _UPLINK
    return "node" if is_node else "network", PacketFields(
        ports=single(target.port),
        sources=single(int(ipaddress.ip_address(source_address(target)))),
        inputs=frozenset({""}) if is_node else _interface_names(interface, mentioned),
        # The output interface depends on the destination after NAT.
        outputs=_interface_names(_BRIDGE, mentioned) | _interface_names(_UPLINK, mentioned),
        states=frozenset({"new"}),
    )


def _interface_names(name: str, mentioned: set[str]) -> frozenset[str]:
    """Return the names that stand for an interface in a comparison: of the patterns that match it, or of all others."""
    found = {word for word in mentioned if word == name or (word.endswith(("*", "+")) and name.startswith(word[:-1]))}
    return frozenset(found - {"*", "+"} or {"*"})


def live_diff(node: ParityNode, objects: Path, settings: Settings) -> list[str]:
    """Run ``knft diff --live`` on a node, and return its unexpected and undecided differences."""
    command = [*KNFT, "diff", "--live", "-f", str(objects), *NODE_FLAG, *settings.flags, "-o", "json"]
    return _problems(f"knft diff --live beside {node.name}", node, command)


def captured_diff(node: KubeProxyNode, objects: Path, settings: Settings) -> list[str]:
    """Run ``knft diff`` of files with kube-proxy's rules, and return its unexpected and undecided differences."""
    found = capture(node)
    # A capture of iptables does not have the node's addresses.
    flags = [f"--local-address={address}" for address in node_addresses(node.namespace)]
    if found.nftables is not None:
        (objects.parent / "rules.json").write_bytes(found.nftables)
        flags += ["--nft-json", str(objects.parent / "rules.json")]
    for version, text in found.rules.items():
        path = objects.parent / f"saved-{version}"
        path.write_text(text)
        flags += ["--iptables-save" if version == 4 else "--ip6tables-save", str(path)]
    command = [*KNFT, "diff", "-f", str(objects), *NODE_FLAG, *settings.flags, *flags, "-o", "json"]
    return _problems(f"knft diff of the rules of {node.name}", node, command)


def _problems(what: str, node: ParityNode, command: Sequence[str]) -> list[str]:
    done = node.namespace.run(command, check=False)
    if done.returncode == 0:
        return []
    try:
        report = json.loads(done.stdout)
    except ValueError:
        return [f"{what}: exit status {done.returncode}: {done.stderr.strip()}"]
    return [
        f"{what}: {family['family']}: {item}"
        for family in report["families"]
        for item in (*family["differences"], *family["undecided"])
    ] or [f"{what}: exit status {done.returncode}, {report['verdict']}"]
