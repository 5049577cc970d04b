"""What the API server says about pods: when each was an endpoint, was deleted and died. Computes only."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct, field


class Listing(Struct, omit_defaults=True):
    """A time during which an EndpointSlice had an address of a pod as a ready endpoint."""

    address: str
    listed: float
    unlisted: float | None = None
    """None if it is still an endpoint."""


class PodLife(Struct, omit_defaults=True):
    """A pod; times are of the wall clock. Those that the API server writes are whole seconds, rounded down."""

    deleted: float | None = None
    """When its deletion was requested."""
    died: set[float] = field(default_factory=set)
    """When its containers ended: several times if they were started again."""
    started: set[float] = field(default_factory=set)
    """When its containers started, as far as the API server told it."""
    listings: list[Listing] = field(default_factory=list)


class PodLives:
    """The lives of the pods by their names, from the events of a watch of Pods and one of EndpointSlices."""

    def __init__(self) -> None:
        """Know no pod."""
        self.lives: dict[str, PodLife] = {}
        self._ready: dict[str, set[tuple[str, str]]] = {}
        """The pods and addresses of each EndpointSlice that are ready."""

    def observe(self, event: Mapping[str, Any], now: float) -> None:
        """Take an event of a watch, which came at the time ``now``."""
        item = event.get("object", {})
        if item.get("kind") == "Pod":
            self._observe_pod(item, is_gone=event["type"] == "DELETED", now=now)
        elif item.get("kind") == "EndpointSlice":
            is_gone = event["type"] == "DELETED"
            self._observe_slice(item["metadata"]["name"], set() if is_gone else set(_ready_endpoints(item)), now)

    def _observe_pod(self, pod: Mapping[str, Any], *, is_gone: bool, now: float) -> None:
        metadata = pod["metadata"]
        life = self.lives.setdefault(metadata["name"], PodLife())
        if text := metadata.get("deletionTimestamp"):
            life.deleted = _seconds(text) - metadata.get("deletionGracePeriodSeconds", 0)
        life.died |= set(_times(pod, "terminated", "finishedAt"))
        life.started |= set(_times(pod, "running", "startedAt"))
        if is_gone and not life.died:
            # Deleted without a last status: its node was gone, or the pod never ran.
            life.died.add(now)

    def _observe_slice(self, name: str, ready: set[tuple[str, str]], now: float) -> None:
        before = set().union(*self._ready.values())
        self._ready[name] = ready
        after = set().union(*self._ready.values())
        for pod, address in after - before:
            self.lives.setdefault(pod, PodLife()).listings.append(Listing(address, now))
        for pod, address in before - after:
            for listing in self.lives[pod].listings:
                if listing.address == address and listing.unlisted is None:
                    listing.unlisted = now

    def kill(self, pods: Mapping[str, float]) -> None:
        """Record the deaths of pods that the API server cannot know, such as those of a node without power."""
        for name, when in pods.items():
            self.lives.setdefault(name, PodLife()).died.add(when)


def _times(pod: Mapping[str, Any], state: str, name: str) -> Iterator[float]:
    """Yield a time of the present and the previous states of the containers."""
    for container in pod.get("status", {}).get("containerStatuses", ()):
        for key in ("state", "lastState"):
            if text := container.get(key, {}).get(state, {}).get(name):
                yield _seconds(text)


def _ready_endpoints(endpoint_slice: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for endpoint in endpoint_slice.get("endpoints") or ():
        if endpoint.get("conditions", {}).get("ready") is not False and "targetRef" in endpoint:
            for address in endpoint["addresses"]:
                yield endpoint["targetRef"]["name"], address


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
