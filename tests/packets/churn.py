"""A cluster whose endpoints never rest: they come and go, from the middle too, each with a target port of its own.

``SERVICES`` says who there is, ``Churn`` draws what happens next. No pool is ever empty, and where a policy is Local
no local pool is; all else may happen between one sync and the next, also that everybody goes but one.
"""

from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple

from knft.render.numbering import FLAPS
from tests.packets.crowd import STICKY
from tests.packets.programmed import balanced, both_protocols, endpoints, service

PODS = ("local-1", "local-2", "local-3", "local-4", *(f"remote-{number}" for number in range(1, 9)))
TARGET_PORTS = (8080, 8081, 8082)
LARGEST = 12
LOCAL = {"externalTrafficPolicy": "Local"}


class Backend(NamedTuple):
    """A pod and the port at which it is an endpoint."""

    pod: str
    port: int

    @property
    def is_local(self) -> bool:
        """Whether it is on the node under test."""
        return self.pod.startswith("local")


Pool = tuple[Backend, ...]

EVERY = tuple(Backend(pod, port) for pod in PODS for port in TARGET_PORTS)
HERE = tuple(backend for backend in EVERY if backend.is_local)


class Kind(NamedTuple):
    """A Service: its number in all its addresses, what its spec says besides, and how often its endpoints change."""

    name: str
    number: int
    spec: dict[str, Any]
    weight: int
    local_frontends: tuple[str, ...] = ()
    """Where policy Local is for everybody who dials there from outside."""

    @property
    def is_sticky(self) -> bool:
        """Whether it remembers its clients."""
        return bool(self.spec.keys() & STICKY.keys())

    @property
    def node_port(self) -> int:
        """Its NodePort."""
        return 30000 + self.number

    def manifest(self) -> dict[str, Any]:
        """Return the Service."""
        plain = service(self.name, self.number, *both_protocols("http", 80, self.node_port), **self.spec)
        return balanced(plain, f"$external.{self.number}")


SERVICES = (
    Kind("open", 70, {}, 3),
    Kind("near", 71, LOCAL, 3, ("external", "node")),
    Kind("inner", 72, {"internalTrafficPolicy": "Local"}, 2, ("cluster",)),
    Kind("kept", 73, STICKY, 1),
    Kind("kept-near", 74, STICKY | LOCAL, 1, ("external", "node")),
)


class Churn:
    """The pools of all Services, as they change."""

    def __init__(self, chance: Random, staying: Pool = ()) -> None:
        """Begin with pools drawn at random; ``staying`` are endpoints of every Service for good."""
        self._chance = chance
        self._staying = staying
        self._left: dict[str, Counter[Backend]] = {kind.name: Counter() for kind in SERVICES}
        self.pools: dict[str, Pool] = {kind.name: self._allowed(kind, (), self._afresh(kind, ())) for kind in SERVICES}

    def objects(self) -> list[dict[str, Any]]:
        """Return everything there is."""
        return [item for kind in SERVICES for item in self.objects_of(kind)]

    def objects_of(self, kind: Kind) -> list[dict[str, Any]]:
        """Return a Service and its slices."""
        return [kind.manifest(), *slices_between(kind.name, (), self.pools[kind.name])]

    def step(self) -> tuple[str, list[dict[str, Any]]]:
        """Let something happen to a Service's endpoints; return its name, and the slices that are others now."""
        kind = self._chance.choices(SERVICES, [kind.weight for kind in SERVICES])[0]
        before = self.pools[kind.name]
        happens = self._chance.choice((self._without_one, self._with_another, self._with_one_replaced, self._afresh))
        after = self._allowed(kind, before, happens(kind, before))
        self._left[kind.name].update(set(before) - set(after))
        self.pools[kind.name] = after
        return kind.name, list(slices_between(kind.name, before, after))

    def _without_one(self, _: Kind, pool: Pool) -> Pool:
        """Remove one at the start, in the middle or at the end."""
        place = self._chance.choice((0, len(pool) // 2, len(pool) - 1))
        return pool[:place] + pool[place + 1 :]

    def _with_another(self, _: Kind, pool: Pool) -> Pool:
        others = [backend for backend in EVERY if backend not in pool]
        place = self._chance.randint(0, len(pool))
        return (*pool[:place], self._chance.choice(others), *pool[place:])[:LARGEST]

    def _with_one_replaced(self, kind: Kind, pool: Pool) -> Pool:
        return self._with_another(kind, self._without_one(kind, pool))

    def _afresh(self, _: Kind, pool: Pool) -> Pool:
        """Grow or shrink to any size at once; where there was somebody, one of them stays."""
        drawn = self._chance.sample(EVERY, self._chance.randint(1, LARGEST))
        stays = [self._chance.choice(pool)] if pool else []
        return tuple(dict.fromkeys((*stays, *drawn)))[:LARGEST]

    def _allowed(self, kind: Kind, before: Pool, after: Pool) -> Pool:
        """Return ``after`` with those who stay or may not leave, and somebody local where the policy asks for it."""
        after = tuple(dict.fromkeys((*after, *self._staying)))
        if kind.is_sticky:
            left = self._left[kind.name]
            # An endpoint that has left so often gets back an old index, and with it clients who have gone elsewhere.
            after = (*after, *(backend for backend in before if backend not in after and left[backend] >= FLAPS - 1))
        if not any(backend.is_local for backend in after):
            after = (*after, self._chance.choice([backend for backend in before if backend.is_local] or HERE))
        return after


def slices_between(name: str, before: Pool, after: Pool) -> Iterator[dict[str, Any]]:
    """Yield the slices of a Service that differ in two pools: one for each target port."""
    for port in TARGET_PORTS:
        pods = [backend.pod for backend in after if backend.port == port]
        if pods != [backend.pod for backend in before if backend.port == port]:
            item = endpoints(name, *pods, http=port)
            yield {**item, "metadata": {**item["metadata"], "name": f"{name}-{port}"}}
