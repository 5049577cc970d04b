"""The NodePorts that the forwarder serves in one family, and how they change."""

from collections.abc import Iterable

from msgspec import Struct

from knft.decide.loopback import loopback_nodeport
from knft.model.names import ServicePortName
from knft.model.plan import ServicePlan


class ForwardedPort(Struct, frozen=True):
    """A NodePort on the loopback address of its family; ``affinity_seconds`` is 0 without session affinity."""

    service: str
    endpoints: tuple[tuple[str, int], ...]
    affinity_seconds: int = 0


PortChanges = dict[int, ForwardedPort | None]
"""NodePorts to serve from now on, by number; None for those that are no longer served."""


def forwarded_port(plan: ServicePlan) -> tuple[int, ForwardedPort] | None:
    """Return the NodePort that a plan makes the forwarder serve, None if there is none."""
    found = loopback_nodeport(plan)
    if found is None:
        return None
    number, endpoints = found
    targets = tuple(each.target for each in endpoints)
    return number, ForwardedPort(str(plan.name), targets, plan.port.affinity_seconds)


class ForwardedPorts:
    """The NodePorts that one family's Service ports make the forwarder serve."""

    def __init__(self) -> None:
        """Start with none."""
        self._numbers: dict[ServicePortName, int] = {}
        self.by_number: dict[int, ForwardedPort] = {}

    def update(self, plans: Iterable[tuple[ServicePortName, ServicePlan | None]]) -> PortChanges:
        """Take the plans of changed Service ports, None for deleted ones; return which NodePorts have changed."""
        changes: PortChanges = {}
        served: list[tuple[ServicePortName, int, ForwardedPort]] = []
        # Removals first: two Services may have swapped their NodePorts.
        for name, plan in plans:
            number = self._numbers.pop(name, None)
            if number is not None:
                changes[number] = None
            found = forwarded_port(plan) if plan is not None else None
            if found is not None:
                served.append((name, *found))
        for name, number, port in served:
            self._numbers[name] = number
            changes[number] = port
        changes = {number: changed for number, changed in changes.items() if self.by_number.get(number) != changed}
        for number, changed in changes.items():
            if changed is None:
                del self.by_number[number]
            else:
                self.by_number[number] = changed
        return changes
