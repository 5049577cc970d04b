"""Scenarios: clusters and packets as data, read from ``tests/scenarios/*.yaml``.

A scenario is written once for both families; ``families`` explains its ``$names``, and how its objects become those of
both families. A file may have several scenarios, as YAML documents. One without ``objects`` has those of the document
before it, so that a cluster can be tested with different flags.

The fields of ``Scenario`` and ``Packet`` are the keys of a file.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Literal

import msgspec

from tests.support import fast_yaml
from tests.support.families import VERSIONS, address, in_both, objects_of_both
from tests.support.lab import plan

__all__ = ["DEFAULT_FLAGS", "FOLDER", "UNALLOCATED", "VERSIONS", "Packet", "Scenario", "address", "read_scenarios"]

FOLDER = Path(__file__).parent.parent / "scenarios"

DEFAULT_FLAGS = ("--cluster-cidr=$pods", "--service-cidr=$services")
DEFAULT_NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": plan.NODE.node_name, "labels": {"topology.kubernetes.io/zone": "zone-a"}},
    "status": {"addresses": [{"type": "InternalIP", "address": "$node"}]},
}

UNALLOCATED = plan.Subnet("10.96.0", "fd00:10:96").at(99)
"""``$cluster.99``: the remote node answers there on port 80 if knft does not drop the packet."""
UNPROXIED = tuple(plan.Subnet("203.0.113", "2001:db8:cb").at(number) for number in range(96, 100))
"""``$external.96`` to ``.99``: the remote node answers there too, so that a missing answer proves a drop."""


class Expectation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The expected outcome of a connection: exactly one of these.

    ``answered_by`` lists all endpoints that may answer; each must answer within 100 connections. ``always_one_of``
    lists endpoints of which the same one must answer all connections. ``source`` tells which source address they see:
    the client's, a masqueraded one, or the frontend's own if the client has bound to that. ``rejected`` means an ICMP
    error. ``dropped`` means no answer, and that no server got the packet. ``unserved`` means a TCP reset by the node
    itself, which has not translated the packet.
    """

    answered_by: tuple[str, ...] = ()
    always_one_of: tuple[str, ...] = ()
    source: Literal["kept", "masqueraded", "frontend"] = "kept"
    rejected: bool = False
    dropped: bool = False
    unserved: bool = False

    def __post_init__(self) -> None:
        """Require exactly one outcome."""
        outcomes = (bool(self.answered_by), bool(self.always_one_of), self.rejected, self.dropped, self.unserved)
        if sum(outcomes) != 1:
            msg = "a packet needs exactly one outcome"
            raise ValueError(msg)


class ModeDifference(Expectation, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The outcome in another of kube-proxy's modes, if it is an expected difference.

    ``by`` is the name of the expected difference; ``family`` is given if the mode differs in that family only.
    """

    by: str
    family: Literal[4, 6] | None = None


class Packet(
    Expectation,
    frozen=True,
    kw_only=True,
    rename={"client": "from", "source_address": "as"},
    forbid_unknown_fields=True,
):
    """A connection attempt and its expected outcome.

    ``clause`` names one or several clauses of docs/behaviour that the packet verifies (``tests/packets/clauses.py``).
    ``from`` is the client, ``as`` its source address if it has several, and ``to`` is ``$name:port``. ``family`` is
    given if the packet exists in that family only, ``iptables`` and ``ipvs`` if that mode has another outcome.
    """

    clause: str | tuple[str, ...]
    client: str
    to: str
    source_address: str = ""
    protocol: Literal["tcp", "udp", "sctp"] = "tcp"
    family: Literal[4, 6] | None = None
    iptables: ModeDifference | tuple[ModeDifference, ...] = ()
    ipvs: ModeDifference | tuple[ModeDifference, ...] = ()
    note: str = ""

    def mode_differences(self, mode: str) -> tuple[ModeDifference, ...]:
        """Return the differences of a mode: nftables, iptables or ipvs."""
        found: ModeDifference | tuple[ModeDifference, ...] = getattr(self, mode, ())
        return (found,) if isinstance(found, ModeDifference) else found

    def expected_in(self, mode: str, version: plan.Version) -> Expectation:
        """Return the expected outcome in a mode and a family."""
        differences = (item for item in self.mode_differences(mode) if item.family in (None, version))
        return next(differences, self)

    @property
    def clauses(self) -> tuple[str, ...]:
        """All clauses that the packet verifies."""
        return (self.clause,) if isinstance(self.clause, str) else self.clause

    @property
    def versions(self) -> tuple[plan.Version, ...]:
        """The families in which it is sent."""
        return VERSIONS if self.family is None else (self.family,)

    def __str__(self) -> str:
        """Return the packet as a test's name."""
        client = f"{self.client} ({self.source_address})" if self.source_address else self.client
        return f"{self.clauses[0]} {client} to {self.to}/{self.protocol}"


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A cluster, a node, and packets.

    ``flags`` are added to the default flags, or replace those of the same name; a flag with a ``$name`` has both
    families. ``before`` is an earlier cluster, which another process applies first. ``addresses`` are additional
    addresses of hosts.
    """

    title: str
    objects: list[dict[str, Any]]
    packets: tuple[Packet, ...]
    before: list[dict[str, Any]] | None = None
    flags: tuple[str, ...] = ()
    node: dict[str, Any] = msgspec.field(default_factory=lambda: DEFAULT_NODE)
    addresses: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    name: str = ""

    def manifests(self) -> list[dict[str, Any]]:
        """Return the Kubernetes objects of both families."""
        return self._written(self.objects)

    def earlier_manifests(self) -> list[dict[str, Any]]:
        """Return the objects of ``before``, in both families."""
        return self._written(self.before or [])

    def _written(self, objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [written for item in (self.node, *objects) for written in objects_of_both(item)]

    def arguments(self) -> list[str]:
        """Return the flags for knft."""
        given = {flag.partition("=")[0] for flag in self.flags}
        flags = [flag for flag in DEFAULT_FLAGS if flag.partition("=")[0] not in given] + list(self.flags)
        return [f"{name}{equals}{in_both(value)}" for name, equals, value in (flag.partition("=") for flag in flags)]

    def listeners(self) -> set[tuple[str, int, Literal["tcp", "udp", "sctp"]]]:
        """Return host, port and protocol of each endpoint in any EndpointSlice, earlier ones included."""
        return {
            (str(address).removeprefix("$"), port["port"], port.get("protocol", "TCP").lower())
            for item in [*(self.before or []), *self.objects]
            if item["kind"] == "EndpointSlice"
            for endpoint in item["endpoints"]
            for address in endpoint["addresses"]
            for port in item["ports"]
        }


@cache
def read_scenarios() -> tuple[Scenario, ...]:
    """Return every scenario, in the order of the files' names."""
    return tuple(scenario for path in sorted(FOLDER.glob("*.yaml")) for scenario in read_file(path))


def read_file(path: Path) -> Iterator[Scenario]:
    """Yield the scenarios of one file."""
    objects: list[dict[str, Any]] = []
    for number, document in enumerate(fast_yaml.load_all(path.read_text()), start=1):
        scenario = msgspec.convert({"objects": objects, **document}, Scenario, strict=True)
        objects = scenario.objects
        yield msgspec.structs.replace(scenario, name=path.stem if number == 1 else f"{path.stem} {number}")
