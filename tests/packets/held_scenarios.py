"""The changes during which packets are held, for each kind of change in docs/design/transaction-phases.md#counts.

A scenario changes one Service in steps, and begins again after the last one. After each step its client gets one of the
step's outcomes. A packet that is held during a transaction gets an outcome of the state before or after the change.

The Service has addresses at which the remote node answers packets that leave the node untranslated.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import count
from typing import Any, NamedTuple

from knft.render import wide
from tests.packets.held_packets import DROPPED, REFUSED, Point, Target
from tests.support.families import address
from tests.support.lab import plan
from tests.support.lab.topology import Lab
from tests.support.packets.churn import LOCAL, PODS, Backend, Pool
from tests.support.packets.in_process_node import InProcessNode
from tests.support.packets.many_clients import STICKY, sticky_for
from tests.support.packets.programmed import endpoints, service, tcp_and_udp, with_load_balancer
from tests.support.scenario import DEFAULT_NODE

NAME, OTHER_NAME, NUMBER, NODE_PORT = "held", "other", 99, 30099
PORTS = tuple(range(8080, 8092))
UNTRANSLATED = "remote"
"""The remote node, which answers untranslated packets."""
CLIENT = "local-4"
"""The pod that is a client, and in some scenarios an endpoint."""
BACKENDS = tuple(Backend(pod, port) for port in PORTS for pod in PODS if pod != CLIENT)
_LOCAL_BACKENDS = tuple(backend for backend in BACKENDS if backend.is_local)
_REMOTE_BACKENDS = tuple(backend for backend in BACKENDS if not backend.is_local)
ANNOTATION = "knft.dev/load-balancing"
OWN = Backend(CLIENT, PORTS[0])

Outcomes = frozenset[str]
IN_CHAINS = (Point.VERDICT, Point.ENDPOINT)
"""The points at which a translated packet can miss an element or a chain."""
ALL_POINTS = (*IN_CHAINS, Point.FILTER, Point.MASQUERADING)
NOT_SERVED = frozenset({DROPPED})
REJECTED = frozenset({REFUSED})


class Step(NamedTuple):
    """One change; without a kind, it only leads to another state."""

    kind: str
    apply: Callable[[InProcessNode], None]
    outcomes: Outcomes
    """The outcomes after the change."""
    points: tuple[Point, ...] = IN_CHAINS
    """The points at which a packet is held during the change, once each."""
    meanwhile: Outcomes = frozenset()
    """More outcomes during the change."""


class Scenario(NamedTuple):
    """Steps with a client that sends packets to the Service's address of ``address_kind``."""

    name: str
    client: str
    address_kind: str
    begin: Callable[[InProcessNode], None]
    steps: tuple[Step, ...]
    """The last one leads to the state before the first one."""
    max_elements: int = 0
    """If it is not 0, the limit for the elements of one transaction."""
    deletes_tables: bool = False
    """Whether a step deletes knft's tables."""

    def target(self, lab: Lab, version: plan.Version) -> Target:
        """Return where the client sends its packets."""
        host = lab.host(self.client)
        if self.address_kind == "node":
            return Target(host, address("node", version), NODE_PORT, "service-nodeports", f"udp . {NODE_PORT}")
        where = address(f"{self.address_kind}.{NUMBER}", version)
        return Target(host, where, 80, "service-ips", f"{where} . udp . 80")


def scenarios() -> Iterator[Scenario]:
    """Yield all scenarios."""
    yield from _added_and_deleted()
    yield from _scaled()
    yield from _sticky()
    yield from _hashed()
    yield from _hashed_local_endpoints()
    yield from _policies()
    yield from _first_endpoints()
    yield from _removed_while_it_connects_to_itself()
    yield from _local_endpoints()
    yield _layout()
    yield _node_address()
    yield from _pieces()
    yield from _first_sync()


def _added_and_deleted() -> Iterator[Scenario]:
    """Without the Service, a NodePort is refused, a cluster IP dropped, and another address not translated."""
    remote = _REMOTE_BACKENDS[:3]
    for kind, spec, pool in (
        ("Service", {}, remote),
        ("Service with external traffic policy Local", LOCAL, _LOCAL_BACKENDS[:2]),
        ("sticky Service", STICKY, remote),
    ):
        deleted = "" if spec is LOCAL else f"{kind} deleted"
        for client, address_kind, absent in (
            ("outside", "node", REJECTED),
            ("outside", "external", frozenset({UNTRANSLATED})),
            (CLIENT, "cluster", NOT_SERVED),
        ):
            meanwhile = REJECTED if address_kind == "cluster" else frozenset()
            yield Scenario(
                f"{kind} added and deleted, {address_kind}",
                client,
                address_kind,
                _applying(_slices(pool)),
                (
                    Step(f"{kind} added", _applying([_full(**spec)]), _pods(pool), _UNSERVED_POINTS, meanwhile),
                    Step(deleted, partial(_delete, NAME), absent, ALL_POINTS if deleted else (), meanwhile),
                ),
            )


_UNSERVED_POINTS = (Point.VERDICT, Point.FILTER)
"""The points that a packet reaches that is not translated."""


def _scaled() -> Iterator[Scenario]:
    first, second = _REMOTE_BACKENDS[:2], (_REMOTE_BACKENDS[0], _REMOTE_BACKENDS[2])
    yield _of_slices("endpoint replaced", _plain(), ("endpoint replaced", first), ("endpoint replaced", second))
    few, many = _REMOTE_BACKENDS[:2], _REMOTE_BACKENDS[:20]
    scaled = "Service with only a cluster IP scaled"
    up_to_64 = f"{scaled}, up to 64 endpoints"
    yield _of_slices(up_to_64, _plain(), (up_to_64, few), (up_to_64, many))
    for name, item, address_kind, new, back, sizes in (
        (scaled, _plain(), "cluster", f"{scaled} to more than 64 endpoints, a new size",
         f"{scaled} from that size to 3", count(65)),
        ("Service with a NodePort scaled", _full(), "node", "Service with a NodePort scaled to a new size",
         "Service with a NodePort scaled back", count(25)),
    ):  # fmt: skip
        yield Scenario(
            f"{name} to a new size",
            "outside" if address_kind == "node" else CLIENT,
            address_kind,
            _applying([item, *_slices(_REMOTE_BACKENDS[:3])]),
            (
                Step(new, partial(_with_more_remote, (), sizes), _pods(_REMOTE_BACKENDS)),
                Step(back, _applying(_slices(_REMOTE_BACKENDS[:3])), _pods(_REMOTE_BACKENDS[:3])),
            ),
        )


def _sticky() -> Iterator[Scenario]:
    """A timeout and its sizes are new in each round."""
    pool, other, more = _REMOTE_BACKENDS[:2], (_REMOTE_BACKENDS[0], _REMOTE_BACKENDS[2]), _REMOTE_BACKENDS[:3]
    timeouts = count(60)
    for kind, create, client, address_kind in (
        ("Service with only a cluster IP", _plain, CLIENT, "cluster"),
        ("Service with a NodePort", _full, "outside", "node"),
        ("Service with a NodePort", _full, "outside", "external"),
    ):
        yield Scenario(
            f"{kind} made sticky, {address_kind}",
            client,
            address_kind,
            _applying([create(), *_slices(pool)]),
            (
                Step(
                    "Service made sticky, with a timeout and size that another sticky Service has",
                    _applying([create(**STICKY)]),
                    _pods(pool),
                ),
                Step("endpoint of a sticky Service replaced", _applying(_slices(other)), _pods(other)),
                Step("sticky Service made not sticky", _applying([create()]), _pods(other)),
                Step("Service made sticky, with a new timeout", partial(_stick, create, timeouts), _pods(other)),
                Step("sticky Service scaled to a new size", _applying(_slices(more)), _pods(more)),
                Step(
                    "endpoint of a sticky Service removed, and another one gets its index",
                    _applying(_slices(more[1:])),
                    _pods(more[1:]),
                ),
                Step("", _applying([create(), *_slices(pool)]), _pods(pool), ()),
            ),
        )


def _hashed() -> Iterator[Scenario]:
    """With fixture ``small_tables``, three endpoints have a smaller table than four."""
    pool, fewer = _REMOTE_BACKENDS[:4], _REMOTE_BACKENDS[:3]
    hashed, maglev = (_annotated(_full(), {ANNOTATION: value}) for value in ("source-hash", "maglev"))
    for address_kind in ("node", "external"):
        yield Scenario(
            f"clients hashed, {address_kind}",
            "outside",
            address_kind,
            _applying([_full(), *_slices(pool)]),
            (
                Step("load balancing changed to source-hash", _applying([hashed]), _pods(pool)),
                Step("", _applying(_slices(fewer)), _pods(fewer)),
                Step("", _applying([_full(**STICKY)]), _pods(fewer)),
                Step("", _applying([hashed]), _pods(fewer)),
                Step("", _applying(_slices(())), REJECTED),
                Step("", _applying(_slices(pool)), _pods(pool), _UNSERVED_POINTS),
                Step("", _applying([maglev]), _pods(pool)),
                Step("load balancing changed to random", _applying([_full()]), _pods(pool)),
            ),
        )


def _hashed_local_endpoints() -> Iterator[Scenario]:
    local, remote = _LOCAL_BACKENDS[:1], _REMOTE_BACKENDS[:1]
    for address_kind in ("node", "external"):
        yield Scenario(
            f"clients hashed, policy Local, {address_kind}",
            "outside",
            address_kind,
            _applying([_annotated(_full(**LOCAL), {ANNOTATION: "maglev"}), *_slices((*local, *remote))]),
            (
                Step("", _applying(_slices(remote)), NOT_SERVED),
                Step("", _applying(_slices((*local, *remote))), _pods(local), _UNSERVED_POINTS),
            ),
        )


def _policies() -> Iterator[Scenario]:
    """The traffic policy changes while the Service has endpoints on this node and on another.

    With consistent hashing, the steps have no kind: as long as a frontend uses a table, it is not removed.
    """
    local = _LOCAL_BACKENDS[:2]
    pool = (*local, *_REMOTE_BACKENDS[:1])
    for kind, annotations, spec in (
        ("Service", {}, {}),
        ("sticky Service", {}, STICKY),
        ("Service with consistent hashing", {ANNOTATION: "maglev"}, {}),
    ):
        for client, address_kind, policy in (
            ("outside", "node", LOCAL),
            ("outside", "external", LOCAL),
            (CLIENT, "cluster", {"internalTrafficPolicy": "Local"}),
        ):
            name = f"{'internal' if client == CLIENT else 'external'} traffic policy"
            of_cluster, of_node = (_annotated(_full(**spec, **each), annotations) for each in ({}, policy))
            yield Scenario(
                f"{name} of a {kind} changed, {address_kind}",
                client,
                address_kind,
                _applying([of_cluster, *_slices(pool)]),
                (
                    Step("" if annotations else f"{name} changed to Local", _applying([of_node]), _pods(local)),
                    Step("" if annotations else f"{name} changed to Cluster", _applying([of_cluster]), _pods(pool)),
                ),
            )


def _first_endpoints() -> Iterator[Scenario]:
    pool = _REMOTE_BACKENDS[:1]
    for kind, item, client, address_kind in (
        ("only a cluster IP", _plain(), CLIENT, "cluster"),
        ("a NodePort", _full(), "outside", "node"),
        ("a NodePort", _full(), "outside", "external"),
    ):
        first = f"first endpoint of a Service with {kind} added"
        yield Scenario(
            f"{first}, {address_kind}",
            client,
            address_kind,
            _applying([item, *_slices(())]),
            (
                Step(first, _applying(_slices(pool)), _pods(pool), _UNSERVED_POINTS),
                Step("", _applying(_slices(())), REJECTED),
            ),
        )


def _removed_while_it_connects_to_itself() -> Iterator[Scenario]:
    other = _REMOTE_BACKENDS[:1]
    points = (*ALL_POINTS, Point.HAIRPIN)
    yield Scenario(
        "local endpoint removed while it connects to itself",
        CLIENT,
        "cluster",
        _applying([_plain(), *_slices((OWN, *other))]),
        (
            Step("local endpoint removed", _applying(_slices(other)), _pods(other), points),
            Step("", _applying(_slices((OWN, *other))), _pods((OWN, *other))),
        ),
    )
    yield Scenario(
        "Service with a local endpoint deleted while the endpoint connects to itself",
        CLIENT,
        "cluster",
        _applying(_slices((OWN,))),
        (
            Step("", _applying([_full()]), frozenset({CLIENT}), (), REJECTED),
            Step("Service with a local endpoint deleted", partial(_delete, NAME), NOT_SERVED, points, REJECTED),
        ),
    )


def _local_endpoints() -> Iterator[Scenario]:
    """A pool of a new size has one more remote endpoint than the one before."""
    name = "local endpoint removed, policy Local, new sizes"
    two, one, remote = _LOCAL_BACKENDS[:2], _LOCAL_BACKENDS[:1], _REMOTE_BACKENDS[:1]
    sizes = count(2)
    for address_kind in ("node", "external"):
        yield Scenario(
            f"{name}, {address_kind}",
            "outside",
            address_kind,
            _applying([_full(**LOCAL), *_slices(one)]),
            (
                Step("", _applying(_slices((*two, *remote))), _pods(two), ()),
                Step(name, partial(_with_more_remote, one, sizes), _pods(one)),
            ),
        )
    sizes = count(2)
    for client, address_kind in (("outside", "external"), ("outside", "node"), (CLIENT, "external")):
        is_pod = client == CLIENT
        yield Scenario(
            f"last {name}, {client} at {address_kind}",
            client,
            address_kind,
            _applying([_full(**LOCAL), *_slices((*one, *remote))], _slices(remote)),
            (
                Step(
                    "first local endpoint added, policy Local",
                    _applying(_slices((*one, *remote))),
                    _pods((*one, *remote)) if is_pod else _pods(one),
                    IN_CHAINS if is_pod else _UNSERVED_POINTS,
                ),
                Step(
                    f"last {name}",
                    partial(_with_more_remote, (), sizes),
                    _pods(_REMOTE_BACKENDS) if is_pod else NOT_SERVED,
                ),
                Step("", _applying(_slices(remote)), _pods(remote) if is_pod else NOT_SERVED, ()),
            ),
        )


def _layout() -> Scenario:
    pool = _REMOTE_BACKENDS[:5]
    restricted = _full(loadBalancerSourceRanges=["$outside/host", "$node.cidr"])
    return Scenario(
        "layout changed",
        "outside",
        "external",
        _applying([restricted, *_slices(pool)]),
        (
            Step("layout changed to wide", partial(_change_layout, 0, pool[:4]), _pods(pool[:4])),
            Step("layout changed from wide", partial(_change_layout, wide.COPIES_FACTOR, pool), _pods(pool)),
        ),
    )


def _node_address() -> Scenario:
    pool = _REMOTE_BACKENDS[:2]
    kind = "address of the node replaced"
    other = {**DEFAULT_NODE, "status": {"addresses": [{"type": "InternalIP", "address": "$node.pods"}]}}
    return Scenario(
        kind,
        "outside",
        "node",
        _applying([_full(), *_slices(pool)]),
        (
            Step(kind, partial(_change_node, other), REJECTED),
            Step(kind, partial(_change_node, DEFAULT_NODE), _pods(pool), _UNSERVED_POINTS),
        ),
    )


def _pieces() -> Iterator[Scenario]:
    """Transactions of eight elements instead of 2 048, and two Services instead of 500."""
    pool = _REMOTE_BACKENDS[:10]
    ports = [port for port in tcp_and_udp("http", 80) if port["protocol"] == "UDP"]
    kind = "500 Services with 10 endpoints each"
    yield Scenario(
        f"{kind} added and deleted",
        CLIENT,
        "cluster",
        _applying([*_slices(pool), *_slices(pool, OTHER_NAME)]),
        (
            Step(
                f"{kind} added",
                _applying([service(NAME, NUMBER, *ports), service(OTHER_NAME, NUMBER - 1, *ports)]),
                _pods(pool),
                _UNSERVED_POINTS,
                REJECTED,
            ),
            Step(f"{kind} deleted", partial(_delete, NAME, OTHER_NAME), NOT_SERVED, ALL_POINTS, REJECTED),
        ),
        max_elements=8,
    )


def _first_sync() -> Iterator[Scenario]:
    """A packet that enters before the table exists is not translated, as without knft."""
    pool = _REMOTE_BACKENDS[:2]
    for client, address_kind, absent, points in (
        ("outside", "node", REJECTED, (Point.FILTER,)),
        (CLIENT, "cluster", frozenset({UNTRANSLATED}), (Point.FILTER, Point.MASQUERADING)),
    ):
        yield Scenario(
            f"first sync, {address_kind}",
            client,
            address_kind,
            _delete_tables_with(_full(), pool),
            (
                Step("first sync", InProcessNode.start_again, _pods(pool), points),
                Step("", InProcessNode.delete_tables, absent, ()),
            ),
            deletes_tables=True,
        )


def sticky(pods: Iterable[str]) -> list[dict[str, Any]]:
    """Return a sticky Service with only a cluster IP, and its slices with one endpoint for each pod."""
    return [_plain(**STICKY), *_slices([Backend(pod, PORTS[0]) for pod in pods])]


def _of_slices(name: str, item: dict[str, Any], first: tuple[str, Pool], second: tuple[str, Pool]) -> Scenario:
    """Return a scenario of a Service with only a cluster IP that alternates between two pools."""
    steps = (Step(kind, _applying(_slices(pool)), _pods(pool)) for kind, pool in (second, first))
    return Scenario(name, CLIENT, "cluster", _applying([item, *_slices(first[1])]), tuple(steps))


def _plain(**spec: Any) -> dict[str, Any]:
    return service(NAME, NUMBER, *tcp_and_udp("http", 80), **spec)


def _full(**spec: Any) -> dict[str, Any]:
    """Return the Service with a cluster IP, a NodePort and a load balancer IP."""
    return with_load_balancer(service(NAME, NUMBER, *tcp_and_udp("http", 80, NODE_PORT), **spec), f"$external.{NUMBER}")


def _annotated(item: dict[str, Any], annotations: dict[str, str]) -> dict[str, Any]:
    return {**item, "metadata": {**item["metadata"], "annotations": annotations}}


def _slices(pool: Iterable[Backend], name: str = NAME) -> list[dict[str, Any]]:
    """Return all EndpointSlices of a Service, one for each port."""
    pods: dict[int, list[str]] = {port: [] for port in PORTS}
    for backend in pool:
        pods[backend.port].append(backend.pod)
    items = [(endpoints(name, *names, http=port), port) for port, names in pods.items()]
    return [{**item, "metadata": {**item["metadata"], "name": f"{name}-{port}"}} for item, port in items]


def _pods(pool: Iterable[Backend]) -> Outcomes:
    return frozenset(backend.pod for backend in pool)


def _applying(*changes: list[dict[str, Any]]) -> Callable[[InProcessNode], None]:
    """Return a function that applies objects, with a sync after each change."""

    def apply(node: InProcessNode) -> None:
        for objects in changes:
            node.apply(objects)

    return apply


def _delete(*arguments: Any) -> None:
    *names, node = arguments
    node.apply([], deleted=names)


def _with_more_remote(local: Pool, sizes: Iterator[int], node: InProcessNode) -> None:
    node.apply(_slices((*local, *_REMOTE_BACKENDS[: next(sizes)])))


def _stick(create: Callable[..., dict[str, Any]], timeouts: Iterator[int], node: InProcessNode) -> None:
    """Make the Service sticky, with a timeout that no Service had before."""
    node.apply([create(**sticky_for(next(timeouts)))])


def _change_layout(factor: int, pool: Pool, node: InProcessNode) -> None:
    wide.COPIES_FACTOR = factor
    node.apply(_slices(pool))


def _change_node(item: dict[str, Any], node: InProcessNode) -> None:
    node.node = item
    node.apply([])


def _delete_tables_with(item: dict[str, Any], pool: Pool) -> Callable[[InProcessNode], None]:
    def begin(node: InProcessNode) -> None:
        node.apply([item, *_slices(pool)])
        node.delete_tables()

    return begin
