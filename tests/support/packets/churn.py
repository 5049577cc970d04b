"""A cluster whose endpoints are added and removed at random, each with its own target port.

``SERVICES`` has the Services, ``Churn`` chooses the next change. A Service always has an endpoint, and a local one if a
policy is Local. Apart from that one sync can make any change, such as replacing all endpoints except one.
"""

from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple

from tests.support.packets.many_clients import STICKY
from tests.support.packets.programmed import endpoints, service, tcp_and_udp, with_load_balancer

PODS = ("local-1", "local-2", "local-3", "local-4", *(f"remote-{number}" for number in range(1, 9)))
TARGET_PORTS = (8080, 8081, 8082)
MAX_POOL_SIZE = 12
LOCAL = {"externalTrafficPolicy": "Local"}


class Backend(NamedTuple):
    """A pod, and its port as an endpoint."""

    pod: str
    port: int

    @property
    def is_local(self) -> bool:
        """Whether the pod is on the node under test."""
        return self.pod.startswith("local")


Pool = tuple[Backend, ...]

ALL_BACKENDS = tuple(Backend(pod, port) for pod in PODS for port in TARGET_PORTS)
LOCAL_BACKENDS = tuple(backend for backend in ALL_BACKENDS if backend.is_local)


class ChurningService(NamedTuple):
    """A Service: its name, its number in all its addresses, fields of its spec, and how often its endpoints change."""

    name: str
    number: int
    spec: dict[str, Any]
    weight: int
    local_only_frontends: tuple[str, ...] = ()
    """The kinds of address at which clients from outside reach local endpoints only."""

    @property
    def is_sticky(self) -> bool:
        """Whether it has session affinity."""
        return bool(self.spec.keys() & STICKY.keys())

    @property
    def node_port(self) -> int:
        """Its NodePort."""
        return 30000 + self.number

    def manifest(self) -> dict[str, Any]:
        """Return the Service."""
        plain = service(self.name, self.number, *tcp_and_udp("http", 80, self.node_port), **self.spec)
        return with_load_balancer(plain, f"$external.{self.number}")


SERVICES = (
    ChurningService("cluster-policy", 70, {}, 3),
    ChurningService("external-local", 71, LOCAL, 3, ("external", "node")),
    ChurningService("internal-local", 72, {"internalTrafficPolicy": "Local"}, 2, ("cluster",)),
    ChurningService("sticky", 73, STICKY, 1),
    ChurningService("sticky-external-local", 74, STICKY | LOCAL, 1, ("external", "node")),
)


class Churn:
    """The endpoints of all Services, which change at random."""

    def __init__(self, rng: Random, permanent: Pool = ()) -> None:
        """Begin with random pools; ``permanent`` are endpoints of every Service, and are never removed."""
        self._rng = rng
        self._permanent = permanent
        self.pools: dict[str, Pool] = {
            churning.name: self._corrected((), self._draw_pool(churning, ())) for churning in SERVICES
        }

    def objects(self) -> list[dict[str, Any]]:
        """Return all Services and EndpointSlices."""
        return [item for churning in SERVICES for item in self.objects_of(churning)]

    def objects_of(self, churning: ChurningService) -> list[dict[str, Any]]:
        """Return a Service and its EndpointSlices."""
        return [churning.manifest(), *slices_between(churning.name, (), self.pools[churning.name])]

    def step(self) -> tuple[str, list[dict[str, Any]]]:
        """Change a Service's endpoints at random; return its name, and the EndpointSlices that have changed."""
        churning = self._rng.choices(SERVICES, [churning.weight for churning in SERVICES])[0]
        before = self.pools[churning.name]
        change = self._rng.choice((self._remove_one, self._add_one, self._replace_one, self._draw_pool))
        after = self._corrected(before, change(churning, before))
        self.pools[churning.name] = after
        return churning.name, list(slices_between(churning.name, before, after))

    def _remove_one(self, _: ChurningService, pool: Pool) -> Pool:
        """Remove an endpoint at the start, in the middle or at the end."""
        place = self._rng.choice((0, len(pool) // 2, len(pool) - 1))
        return pool[:place] + pool[place + 1 :]

    def _add_one(self, _: ChurningService, pool: Pool) -> Pool:
        candidates = [backend for backend in ALL_BACKENDS if backend not in pool]
        place = self._rng.randint(0, len(pool))
        return (*pool[:place], self._rng.choice(candidates), *pool[place:])[:MAX_POOL_SIZE]

    def _replace_one(self, churning: ChurningService, pool: Pool) -> Pool:
        return self._add_one(churning, self._remove_one(churning, pool))

    def _draw_pool(self, _: ChurningService, pool: Pool) -> Pool:
        """Draw a pool of any size; one of the former endpoints is kept."""
        sample = self._rng.sample(ALL_BACKENDS, self._rng.randint(1, MAX_POOL_SIZE))
        kept = [self._rng.choice(pool)] if pool else []
        return tuple(dict.fromkeys((*kept, *sample)))[:MAX_POOL_SIZE]

    def _corrected(self, before: Pool, after: Pool) -> Pool:
        """Return ``after`` with the endpoints that may not be removed, and with a local one."""
        after = tuple(dict.fromkeys((*after, *self._permanent)))
        if not any(backend.is_local for backend in after):
            after = (*after, self._rng.choice([backend for backend in before if backend.is_local] or LOCAL_BACKENDS))
        return after


def slices_between(name: str, before: Pool, after: Pool) -> Iterator[dict[str, Any]]:
    """Yield the EndpointSlices of a Service that differ between two pools: there is one for each target port."""
    for port in TARGET_PORTS:
        pods = [backend.pod for backend in after if backend.port == port]
        if pods != [backend.pod for backend in before if backend.port == port]:
            item = endpoints(name, *pods, http=port)
            yield {**item, "metadata": {**item["metadata"], "name": f"{name}-{port}"}}
