"""ApiServerSource: the API server as a source of objects, as DirectorySource is; one thread watches each resource."""

import random
import threading
import time
from collections.abc import Callable, Iterable

from knft.apiserver import resources
from knft.apiserver.api_client import ApiClient
from knft.apiserver.list_watch import WatchTimeouts
from knft.apiserver.reflector import OnInvalidObject, Reflector, ignore_invalid_object
from knft.apiserver.store import Store
from knft.apiserver.watch_problems import WatchProblems
from knft.control.messages import ServerOutage
from knft.memory_errors import exit_if_out_of_memory
from knft.model.objects import ObjectChange

WATCHED_RESOURCES = (resources.SERVICES.name, resources.ENDPOINT_SLICES.name, resources.SERVICE_CIDRS.name, "nodes")
HandleChanges = Callable[[Iterable[ObjectChange]], None]
"""Receives changes; several threads call it."""


class ApiServerSource:
    """The Services, EndpointSlices and ServiceCIDRs of a cluster, and its Node ``node_name``."""

    def __init__(
        self,
        client: ApiClient,
        node_name: str,
        handle_changes: HandleChanges,
        *,
        on_failure: Callable[[Exception], None] = lambda _: None,
        on_invalid_service: OnInvalidObject = ignore_invalid_object,
        random_fraction: Callable[[], float] = random.random,
        now: Callable[[], float] = time.monotonic,
        timeouts: WatchTimeouts | None = None,
    ) -> None:
        """Send nothing yet; ``random_fraction`` returns numbers from 0 to 1, ``now`` seconds.

        After an unexpected error the source calls ``on_failure`` with it, and then sets ``stop``, because a proxy that
        stopped watching has to exit. ``on_invalid_service`` is called once for each problem of an invalid Service, with
        the logged text.
        """
        self._client = client
        self._on_failure = on_failure
        self._now = now
        self._problems = WatchProblems(now)
        self._listed_or_stopped = threading.Event()
        self._reflectors = {
            resource.name: Reflector(
                resource,
                client,
                Store(node_name),
                handle_changes=handle_changes,
                problems=self._problems,
                random_fraction=random_fraction,
                now=now,
                timeouts=timeouts,
                on_invalid_object=on_invalid_service if resource is resources.SERVICES else ignore_invalid_object,
            )
            for resource in (
                resources.SERVICES,
                resources.ENDPOINT_SLICES,
                resources.SERVICE_CIDRS,
                resources.node(node_name),
            )
        }
        self._threads: list[threading.Thread] = []

    def start(self, stop: threading.Event) -> None:
        """List and watch in threads of their own until ``stop`` is set; the connection is closed then."""
        for reflector in self._reflectors.values():
            self._start_thread(reflector.resource.name, self._run_reflector, reflector, stop)
        self._start_thread("cluster-synced", self._wait_listed, stop)
        self._start_thread("cluster-stop", self._close, stop)

    def _start_thread(self, name: str, work: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=work, name=name, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def wait_all_listed(self, timeout: float | None = None) -> bool:
        """Wait for ``all_listed``, and return it.

        Returns False after ``timeout`` seconds, or when ``stop`` is set before.
        """
        self._listed_or_stopped.wait(timeout)
        return self.all_listed

    @property
    def all_listed(self) -> bool:
        """Whether Services, EndpointSlices and ServiceCIDRs have been listed; OwnNode waits for the Node.

        ServiceCIDRs may be missing from the API, or forbidden; once the server has answered so, they count as listed.
        """
        return all(event.is_set() for event in self._listed_events())

    def _listed_events(self) -> tuple[threading.Event, ...]:
        return (
            self._reflectors["services"].listed,
            self._reflectors["endpointslices"].listed,
            self._reflectors["servicecidrs"].listed_or_unavailable,
        )

    def problem(self, name: str) -> str:
        """Return why a resource (``services``, ``nodes``, ...) cannot be watched now, "" if it can."""
        return self._problems.problem(name)

    def problems(self) -> tuple[str, ...]:
        """Return why resources cannot be watched now; a problem of the server as a whole once."""
        found: dict[str, list[str]] = {}
        for name in self._reflectors:
            if problem := self.problem(name):
                found.setdefault(problem, []).append(name)
        return tuple(f"cannot watch {', '.join(names)}: {problem}" for problem, names in found.items())

    def unwatched_seconds(self) -> dict[str, float]:
        """Return for how many seconds each resource that cannot be watched now has not been watched."""
        return self._problems.problem_seconds()

    def outages(self) -> tuple[ServerOutage, ...]:
        """Return when the server or a resource could not be watched, and why."""
        return self._problems.outages()

    def last_message_age(self) -> float | None:
        """Return how many seconds ago the last answer, event or bookmark of any resource arrived; None before that."""
        times = [each.last_message_at for each in self._reflectors.values() if each.last_message_at is not None]
        return self._now() - max(times) if times else None

    def unlisted(self) -> tuple[str, ...]:
        """Return the resources that have not been listed yet, and are not known to be missing."""
        return tuple(name for name in WATCHED_RESOURCES if not self._reflectors[name].listed_or_unavailable.is_set())

    def has_listed(self, name: str) -> bool:
        """Tell whether a resource has been listed once."""
        return self._reflectors[name].listed.is_set()

    def join(self, timeout: float) -> bool:
        """Wait for the threads to end after ``stop`` was set; return whether they have."""
        deadline = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _run_reflector(self, reflector: Reflector, stop: threading.Event) -> None:
        try:
            reflector.run(stop)
        except Exception as error:  # noqa: BLE001 - the main thread raises it again
            exit_if_out_of_memory(error)
            # Errors during a shutdown come from closed connections.
            if not stop.is_set():
                self._on_failure(error)
                stop.set()

    def _wait_listed(self, stop: threading.Event) -> None:
        for event in self._listed_events():
            while not event.wait(0.2) and not stop.is_set():
                pass
        self._listed_or_stopped.set()

    def _close(self, stop: threading.Event) -> None:
        stop.wait()
        self._client.close()
        self._listed_or_stopped.set()
