"""Ten faults of knft, each in another part of its behaviour: the test must find each of them within MAX_SEEDS seeds.

``faulty_knft`` runs knft with one of them, by replacing a function before the modules that use it are loaded; knft
itself has no switch for that.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from msgspec.structs import replace

from knft.decide import endpoints, plan
from knft.render import fragment, frontends, layout
from knft.track import expand

MAX_SEEDS = 5


class Fault(NamedTuple):
    """A fault: what knft does wrong, and the function, its name and its replacement."""

    description: str
    module: Any
    function: str
    replacement: Callable[..., Any]

    def apply(self) -> None:
        """Break knft in this process."""
        setattr(self.module, self.function, self.replacement)


_services_rules, _expand_service = layout._services_rules, expand.expand_service


def _with_ports(**fields: Any) -> Callable[..., Any]:
    """Return ``expand_service`` whose Service ports have other fields."""

    def expand_wrongly(*arguments: Any) -> Any:
        found = _expand_service(*arguments)
        return found and {name: replace(port, **fields) for name, port in found.items()}

    return expand_wrongly


def _first_family_only(service: Any, family: Any) -> Any:
    is_first = service is None or not service.spec.ip_families or service.spec.ip_families[0] == family.value
    return _expand_service(service, family) if is_first else None


def _nothing(*_: Any) -> tuple[()]:
    return ()


FAULTS = {
    "masquerade": Fault(
        "traffic to cluster IPs from outside the cluster is not masqueraded",
        layout,
        "_services_rules",
        lambda *arguments: _services_rules(*arguments)[1:],
    ),
    "hints": Fault("topology hints are ignored", endpoints, "_hint_filter", lambda *_: None),
    "policy": Fault(
        "external traffic policy Local is ignored", expand, "expand_service", _with_ports(external_policy_local=False)
    ),
    "source-range": Fault("loadBalancerSourceRanges are ignored", plan, "_allowed_sources", _nothing),
    "hairpin": Fault("a pod that reaches itself is not masqueraded", fragment, "_hairpins", _nothing),
    "terminating": Fault(
        "serving endpoints that terminate are never used", endpoints, "_is_serving_terminating", lambda _: False
    ),
    "reject": Fault(
        "packets to Services without endpoints are not rejected", frontends, "filter_verdict", lambda _: None
    ),
    "affinity": Fault("session affinity is ignored", expand, "expand_service", _with_ports(affinity_seconds=0)),
    "node-port": Fault("Services have no NodePorts", expand, "expand_service", _with_ports(node_port=0)),
    "dual-stack": Fault(
        "Services have cluster IPs of their first family only", expand, "expand_service", _first_family_only
    ),
}
"""The faults by name."""


def lines() -> Iterator[str]:
    """Yield a line for each fault."""
    yield from (f"{name}: {fault.description}" for name, fault in FAULTS.items())
