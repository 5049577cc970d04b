"""ServiceProblems: probable mistakes of Services.

These are Services that no EndpointSlice serves (docs/behaviour/tracking.md#unserved-services), and frontends with
addresses of the node or of pods (docs/behaviour/tracking.md#address-conflicts).
"""

import itertools
from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct

from knft.model import addresses
from knft.model.names import NamespacedName
from knft.model.objects import EndpointSlice, Service
from knft.track.slices import PortKey, ports_of

GRACE_SECONDS = 60.0
"""How long a problem must last before it is reported: a new Service gets its slices a little later."""

_MAX_PORTS = 3
_MAX_ADDRESSES = 100
"""How many external IPs and load balancer IPs of a Service are checked."""


class MissingSlices(Struct, frozen=True):
    """A Service with a selector and without EndpointSlices."""

    service: NamespacedName

    def __str__(self) -> str:
        """Return a log message."""
        label = f"kubernetes.io/service-name={self.service.name}"
        return (
            f"Service {self.service} has a selector, but no EndpointSlice has label {label}; connections are rejected"
        )


class MissingPorts(Struct, frozen=True):
    """Ports of a Service that no EndpointSlice with endpoints has; ``found`` are the ports of these slices."""

    service: NamespacedName
    missing: tuple[PortKey, ...]
    found: tuple[PortKey, ...]

    def __str__(self) -> str:
        """Return a log message."""
        found = f"only {_listed(self.found)}" if self.found else "no port"
        which = "this port" if len(self.missing) == 1 else "these ports"
        return (
            f"Service {self.service} has port {_listed(self.missing)}, but its EndpointSlices have {found}; "
            f"connections to {which} are rejected"
        )


class AddressConflict(Struct, frozen=True):
    """A Service with an external IP or load balancer IP of the node or of a pod; ``conflict`` describes which."""

    service: NamespacedName
    address: str
    conflict: str

    def __str__(self) -> str:
        """Return a log message."""
        return (
            f"Service {self.service} has the external IP or load balancer IP {self.address}, which is {self.conflict}; "
            "connections to the Service's ports at this address go to its endpoints"
        )


ServiceProblem = MissingSlices | MissingPorts | AddressConflict
_ProblemKey = tuple[type[ServiceProblem], NamespacedName]


class ServiceProblems:
    """Finds the problems of changed Services, and reports each once, after it has lasted for GRACE_SECONDS.

    Times are in seconds and never decrease. Only one thread may call it at a time.
    """

    def __init__(
        self,
        slices_of: Callable[[NamespacedName], Iterable[EndpointSlice]],
        conflict_of: Callable[[str], str] = lambda _: "",
    ) -> None:
        """``slices_of`` returns the EndpointSlices of a Service in all families.

        ``conflict_of`` describes an address that no Service should have, such as "the node's address"; it returns ""
        for other addresses.
        """
        self._slices_of = slices_of
        self._conflict_of = conflict_of
        self._services: dict[NamespacedName, Service] = {}
        self.removals = 0
        """How many Services were deleted since the start."""
        self._changed: dict[NamespacedName, None] = {}
        self._since: dict[_ProblemKey, float] = {}
        """Since when the problems exist that are not reported yet, the oldest first."""
        self._reported: set[_ProblemKey] = set()
        self._ended: list[_ProblemKey] = []

    def record(self, previous: Service | EndpointSlice | None, current: Service | EndpointSlice | None) -> None:
        """Record a changed object."""
        match current or previous:
            case Service() as service:
                self._record_service(service.key, current)  # type: ignore[arg-type]
            case _:
                before, after = _use_of(previous), _use_of(current)
                is_same = before == after
                for name, *_ in (after,) if is_same else (before, after):
                    # The node's addresses, with which external addresses may be in conflict, change too.
                    if name is not None and (not is_same or self._has_external_addresses(name)):
                        self._changed[name] = None

    def _has_external_addresses(self, name: NamespacedName) -> bool:
        service = self._services.get(name)
        return service is not None and any(_external_addresses(service))

    def _record_service(self, name: NamespacedName, current: Service | None) -> None:
        self._changed[name] = None
        if current is None:
            self._services.pop(name, None)
            self.removals += 1
        else:
            self._services[name] = current

    def services(self) -> tuple[Service, ...]:
        """Return the current Services; from any thread. Only deletions change their order; new ones are the last."""
        return tuple(self._services.values())  # in one step of the interpreter

    def check(self, now: float, limit: int) -> bool:
        """Check at most ``limit`` changed Services; return whether there are more."""
        for name in list(itertools.islice(self._changed, limit)):
            del self._changed[name]
            problems = {type(problem) for problem in self._problems(name)}
            for kind in (MissingSlices, MissingPorts, AddressConflict):
                key = (kind, name)
                if kind not in problems:
                    self._since.pop(key, None)
                    if key in self._reported:
                        self._reported.remove(key)
                        self._ended.append(key)
                elif key not in self._reported:
                    self._since.setdefault(key, now)
        return bool(self._changed)

    def take_due(self, now: float, limit: int, grace: float = GRACE_SECONDS) -> list[ServiceProblem] | None:
        """Return at most ``limit`` problems that exist for ``grace`` seconds and were not returned before.

        Returns None if there are no more; an empty list if all that were looked at have ended.
        """
        all_due = itertools.takewhile(lambda item: item[1] + grace <= now, self._since.items())
        due = [key for key, _ in itertools.islice(all_due, limit)]
        if not due:
            return None
        found: list[ServiceProblem] = []
        for kind, name in due:
            del self._since[kind, name]
            for problem in self._problems(name):
                if isinstance(problem, kind):
                    self._reported.add((kind, name))
                    found.append(problem)
        return found

    def take_ended(self) -> list[tuple[type[ServiceProblem], NamespacedName]]:
        """Return the kinds of the reported problems that ended since the last call, and their Services."""
        ended, self._ended = self._ended, []
        return ended

    def _problems(self, name: NamespacedName) -> Iterator[ServiceProblem]:
        service = self._services.get(name)
        if service is None or not service.spec.cluster_ip or service.spec.type == "ExternalName":
            return
        slices = list(self._slices_of(name))
        if not slices and service.spec.selector is not None:
            yield MissingSlices(name)
        found = ports_of(slices)
        required = [PortKey(port.name, port.protocol) for port in service.spec.ports or ()]
        missing = tuple(port for port in required if port not in found)
        if missing and any(item.endpoints for item in slices):
            yield MissingPorts(name, missing, tuple(sorted(found)))
        yield from self._address_conflict(name, service)

    def _address_conflict(self, name: NamespacedName, service: Service) -> Iterator[AddressConflict]:
        """Yield the first problem of the Service's addresses."""
        for address in itertools.islice(_external_addresses(service), _MAX_ADDRESSES):
            if conflict := self._conflict_of(address):
                yield AddressConflict(name, address, conflict)
                return


def _use_of(item: Service | EndpointSlice | None) -> tuple[NamespacedName | None, str, bool, object]:
    """Return what problems depend on: the slice's Service and family, whether it has endpoints, and its ports.

    Nearly all changes replace an endpoint, and leave these as they are.
    """
    label = item.metadata.proxy_labels.service_name if item is not None else None
    if not isinstance(item, EndpointSlice) or not label:
        return None, "", False, None
    return NamespacedName(item.metadata.namespace, label), item.address_type, bool(item.endpoints), item.ports


def _external_addresses(service: Service) -> Iterator[str]:
    for text in service.spec.external_ips or ():
        yield from _canonical(text)
    status = service.status.load_balancer if service.status is not None else None
    if status is not None and service.spec.type == "LoadBalancer":
        for ingress in status.ingress or ():
            if ingress.ip and ingress.ip_mode != "Proxy":
                yield from _canonical(ingress.ip)


def _canonical(text: str) -> Iterator[str]:
    parsed = addresses.parse_address(text)
    if parsed is not None:
        yield parsed[1]


def _listed(ports: tuple[PortKey, ...]) -> str:
    shown = ", ".join(map(str, ports[:_MAX_PORTS]))
    rest = len(ports) - _MAX_PORTS
    return f"{shown} and {rest} more" if rest > 0 else shown
