"""CheckedObservers: what knft gives the drainer and the forwarder after each sync, compared with a model.

The model reads manifests, and shares no code with knft. It follows docs/behaviour/draining.md#connections,
docs/behaviour/loopback-nodeports.md#client and docs/behaviour/ownership.md#order.
"""

from collections.abc import Collection, Mapping, Sequence
from ipaddress import ip_address, ip_network

from knft.config import Config
from knft.decide.stale_flows import PORT_BYTES
from knft.families import Family
from knft.forwarder.observer import LocalhostNodePorts
from knft.forwarder.ports import ForwardedPort
from knft.sync.connection_drainer import GRACE_SECONDS, ConnectionDrainer
from knft.sync.report import SyncReport
from knft.sync.state import ServiceState
from tests.support.equivalence import Facts, difference
from tests.support.fake_clock import FakeClock
from tests.support.service_manifests import Manifest, ServicePort, service_ports, socket_text, zone_of

_PRECEDENCE = ("cluster IP", "VIP", "external IP", "NodePort")
"""The kinds of frontends."""

_Name = tuple[str, str]
"""Name and protocol of a Service port."""
_Owners = Mapping[tuple[str, str, int], ServicePort]
"""The owner of each frontend: address ("" for a NodePort), protocol and port."""


class CheckedObservers:
    """A drainer and an observer for the forwarder, as ``knft run`` has them; the syncs are the test's."""

    def __init__(self, config: Config, now: float) -> None:
        """Start before the first sync."""
        self._config = config
        self._clock = FakeClock(now)
        self._drainer = ConnectionDrainer(config, frozenset[str], clock=self._clock)
        self._models = {family: _DrainModel() for family in Family}
        self._forwarded: dict[Family, dict[int, ForwardedPort]] = {family: {} for family in Family}
        served = [family for family in Family if config.serves_localhost_nodeports(family)]
        self._forwarder = LocalhostNodePorts(dict.fromkeys(served, self))

    def update(self, family: Family, changes: Mapping[int, ForwardedPort | None]) -> None:
        """Take changed NodePorts in place of the forwarder."""
        current = {**self._forwarded[family], **changes}
        self._forwarded[family] = {number: port for number, port in current.items() if port is not None}

    def sync_started(self, family: Family) -> None:
        """Tell the observers that a sync begins."""
        self._drainer.sync_started(family)

    def sync_failed(self, family: Family) -> list[str]:
        """Return a line if the drainer would end connections, although the rules in force are unknown."""
        is_idle = self._drainer._lost(family, self._clock.now) is None
        return [] if is_idle else ["the drainer ends connections after a failed sync"]

    def sync_succeeded(
        self, report: SyncReport, state: ServiceState, objects: Sequence[Manifest], now: float
    ) -> list[str]:
        """Tell the observers about a sync; return a line for each difference from the model.

        Then the connections that are due have ended.
        """
        self._clock.now = now
        self._drainer.sync_succeeded(report, state)
        self._forwarder.sync_succeeded(report, state)
        family, due = report.family, now - GRACE_SECONDS
        ports = _service_ports(objects, self._config.node_name, family)
        owners, model = _owners(ports), self._models[family]
        model.update(ports, owners, {(str(name), name.protocol.lower()) for name in report.quarantined}, now)
        nodeports = _expected_nodeports(owners) if _is_forwarded(self._config, family) else {}
        lines = [
            *difference(model.lost_until(now), self._lost_until(family, now)),
            *(f"due: {line}" for line in difference(model.lost_until(due), self._lost_until(family, due))),
            *difference(nodeports, dict(map(_nodeport_fact, self._forwarded[family].items()))),
        ]
        self._drainer._families[family].finish_pass(due, now, is_complete=True)
        model.forget_until(due)
        return lines

    def _lost_until(self, family: Family, time: float) -> Facts:
        found = self._drainer._lost(family, time)
        assert found is not None
        return {
            _lost_at(_unpacked(key)): sorted(socket_text(*_unpacked(endpoint)) for endpoint in endpoints)
            for key, endpoints in found.endpoints.items()
        }


class _DrainModel:
    """The endpoints that the draining Service ports of one family had after each sync."""

    def __init__(self) -> None:
        self._frontends: dict[_Name, list[tuple[str, int]]] = {}
        self._seen: dict[_Name, list[tuple[float, frozenset[str]]]] = {}
        """Times of syncs, in order, and the endpoints at each."""

    def update(
        self, ports: Collection[ServicePort], owners: _Owners, quarantined: Collection[_Name], now: float
    ) -> None:
        """Take the Service ports after a sync; those in quarantine keep the rules that they had before."""
        draining = {_name(port): port for port in ports if port.drain == "reset" and port.protocol == "tcp"}
        for name in self._seen.keys() - draining.keys() - set(quarantined):
            del self._seen[name], self._frontends[name]
        for name in draining.keys() - set(quarantined):
            port = draining[name]
            self._seen.setdefault(name, []).append((now, frozenset(map(str, port.endpoints))))
            self._frontends[name] = [(key[0], key[2]) for key, owner in owners.items() if owner is port]

    def lost_until(self, until: float) -> Facts:
        """Return the endpoints that no sync since ``until`` or an earlier time had, by frontend."""
        found: dict[str, set[str]] = {}
        for name, seen in self._seen.items():
            lost: set[str] = set()
            for number, (time, _) in enumerate(seen):
                if time <= until:
                    before, since = seen[:number], seen[number:]
                    lost |= _all_endpoints(before) - _all_endpoints(since)
            for frontend in self._frontends[name] if lost else ():
                found.setdefault(_lost_at(frontend), set()).update(lost)
        return {frontend: sorted(endpoints) for frontend, endpoints in found.items()}

    def forget_until(self, until: float) -> None:
        """Forget the endpoints that were lost at ``until`` or before."""
        for name, seen in self._seen.items():
            earlier = sum(time <= until for time, _ in seen)
            self._seen[name] = seen[max(0, earlier - 1) :]


def _all_endpoints(seen: Sequence[tuple[float, frozenset[str]]]) -> frozenset[str]:
    return frozenset[str]().union(*(endpoints for _, endpoints in seen))


def _service_ports(objects: Sequence[Manifest], node_name: str, family: Family) -> list[ServicePort]:
    nodes = [item for item in objects if (item["kind"], item["metadata"]["name"]) == ("Node", node_name)]
    return service_ports(objects, node_name, zone_of(nodes[0]) if nodes else "", family.version)


def _owners(ports: Collection[ServicePort]) -> _Owners:
    claims = [
        ((_PRECEDENCE.index(kind), not port.created, port.created, port.service, *_name(port)), (address, number), port)
        for port in ports
        for kind, address, number in port.frontends()
    ]
    owners: dict[tuple[str, str, int], ServicePort] = {}
    for _, (address, number), port in sorted(claims, key=lambda claim: claim[0]):
        owners.setdefault((address, port.protocol, number), port)
    return owners


def _name(port: ServicePort) -> _Name:
    return str(port), port.protocol


def _is_forwarded(config: Config, family: Family) -> bool:
    """Whether loopback addresses of the family accept NodePorts."""
    networks = [ip_network(text) for text in config.nodeport_addresses if "/" in text]
    return config.localhost_nodeports and any(net.is_loopback and net.version == family.version for net in networks)


def _expected_nodeports(owners: _Owners) -> Facts:
    return dict(
        _nodeport_fact((number, ForwardedPort(str(port), targets, port.affinity_seconds)))
        for (address, protocol, number), port in owners.items()
        if not address and protocol == "tcp" and (targets := tuple((end.address, end.port) for end in port.external))
    )


def _nodeport_fact(item: tuple[int, ForwardedPort]) -> tuple[str, object]:
    """Return a fact without the order of the endpoints."""
    number, port = item
    return f"forwarded NodePort {number}", (port.service, sorted(port.endpoints), port.affinity_seconds)


def _lost_at(frontend: tuple[str, int]) -> str:
    address, port = frontend
    return f"lost endpoints of {socket_text(address, port) if address else f'NodePort {port}'}"


def _unpacked(key: bytes) -> tuple[str, int]:
    """Return address and port; the address is empty if there is only a port."""
    address, port = key[:-PORT_BYTES], key[-PORT_BYTES:]
    return str(ip_address(address)) if address else "", int.from_bytes(port, "big")
