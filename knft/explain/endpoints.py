"""Why each endpoint of a Service port is used or not; ``knft.decide.endpoints`` decides whether it is."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from knft.decide.endpoints import applied_hints
from knft.explain.explanation import EndpointUse
from knft.explain.sentences import Sentence, Statement, state
from knft.model.endpoint import Endpoint
from knft.model.endpoint_pod import EndpointState
from knft.model.node import NodeView
from knft.model.plan import ServicePlan


class Traffic(NamedTuple):
    """One kind of traffic to a Service port: the policy that applies to it, None for Cluster."""

    text: str
    local_policy: str | None
    is_external: bool = True


def endpoint_state(endpoint: Endpoint) -> EndpointState:
    """Return the state of an endpoint by its conditions; a terminating one may be ready (publishNotReadyAddresses)."""
    traits = endpoint.traits
    if traits.ready:
        return "ready"
    if not traits.terminating:
        return "not ready"
    return "serving" if traits.serving else "terminating"


def traffic_of(plan: ServicePlan, *, knows_pods: bool) -> Iterator[Traffic]:
    """Yield the kinds of traffic that the traffic policies distinguish; rules may not know pods from other hosts."""
    port = plan.port
    yield Traffic("the cluster IP", "internalTrafficPolicy" if port.internal_policy_local else None, is_external=False)
    if not port.is_externally_accessible:
        return
    if port.external_policy_local:
        far, near = ("from outside", "from pods and this node") if knows_pods else ("from any host", "from this node")
        yield Traffic(f"external frontends {far}", "externalTrafficPolicy")
        yield Traffic(f"external frontends {near}", None)
    else:
        yield Traffic("external frontends", None)


class UseReasons:
    """Finds the reasons for the endpoints of one Service port."""

    def __init__(
        self,
        plan: ServicePlan,
        endpoints: Sequence[Endpoint],
        node: NodeView,
        lost_to: Callable[[Traffic], str],
        *,
        knows_pods: bool,
    ) -> None:
        """``endpoints`` are all endpoints of the Service port.

        ``lost_to`` returns the owners of the frontends of a kind of traffic, "" if the Service port owns one.
        """
        self._node = node
        self._traffic = tuple(traffic_of(plan, knows_pods=knows_pods))
        self._hints = applied_hints([each for each in endpoints if each.ready], node.name, node.zone)
        self._cluster = frozenset(plan.endpoints.cluster)
        self._local = frozenset(plan.endpoints.local)
        self._owners = {traffic: lost_to(traffic) for traffic in self._traffic}

    def uses(self, endpoint: Endpoint) -> tuple[EndpointUse, ...]:
        """Return whether each kind of traffic uses an endpoint, and why."""
        return tuple(self._use(endpoint, traffic) for traffic in self._traffic)

    def _use(self, endpoint: Endpoint, traffic: Traffic) -> EndpointUse:
        if self._owners[traffic]:
            reason = state(Sentence.NO_FRONTEND, owners=self._owners[traffic])
            return EndpointUse(traffic.text, is_used=False, reason=reason)
        chosen = self._cluster if traffic.local_policy is None else self._local
        if endpoint in chosen:
            reason = state(Sentence.USED if endpoint.ready else Sentence.USED_TERMINATING)
            return EndpointUse(traffic.text, is_used=True, reason=reason)
        return EndpointUse(traffic.text, is_used=False, reason=self._exclusion(endpoint, traffic))

    def _exclusion(self, endpoint: Endpoint, traffic: Traffic) -> Statement:
        """Return why traffic does not use an endpoint."""
        traits = endpoint.traits
        if not traits.ready and not traits.terminating:
            return state(Sentence.NOT_READY)
        if not traits.ready and not traits.serving:
            return state(Sentence.NOT_SERVING)
        if traffic.local_policy is not None and not traits.is_local:
            return state(Sentence.OTHER_NODE, policy=traffic.local_policy)
        if not traits.ready:
            return state(Sentence.TERMINATES)
        if self._hints == "node":
            return state(Sentence.HINTED_NODE, nodes=_listed(traits.node_hints))
        return state(Sentence.OTHER_ZONE, zones=_listed(traits.zone_hints), zone=self._node.zone)


def _listed(names: frozenset[str]) -> str:
    return " and ".join(sorted(names))
