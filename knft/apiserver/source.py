"""ClusterSource: the API server as a source of objects, followed by one thread for each resource."""

import random
import threading
import time
from collections.abc import Callable, Iterable

from knft.apiserver import resources
from knft.apiserver.connection import Connection
from knft.apiserver.course import Times
from knft.apiserver.follower import Follower, LeftOut, nobody_hears
from knft.apiserver.held import Held
from knft.apiserver.troubles import Troubles
from knft.model.objects import Change

Handle = Callable[[Iterable[Change]], None]
"""Takes in what changes; it is called by several threads."""


class ClusterSource:
    """What the cluster has that knft reads: Services, EndpointSlices, ServiceCIDRs, and the Node ``node_name``."""

    def __init__(
        self,
        connection: Connection,
        node_name: str,
        handle: Handle,
        *,
        failed: Callable[[Exception], None] = lambda _: None,
        left_out: LeftOut = nobody_hears,
        draw: Callable[[], float] = random.random,
        now: Callable[[], float] = time.monotonic,
        times: Times | None = None,
    ) -> None:
        """Ask nothing yet; ``draw`` gives numbers from 0 to 1, ``now`` seconds.

        ``failed`` is told of an error that nobody expected, ``left_out`` of Services that cannot be meant, each once as
        long as that holds, with what the log says of it.
        """
        self._connection = connection
        self._failed = failed
        self._troubles = Troubles(now)
        self._over = threading.Event()
        """Set once there is nothing more to wait for: all is listed, or everything ends."""
        self.failure: Exception | None = None
        """The error that nobody expected, and that has set ``stop``; a proxy that no longer follows must not go on."""
        self._followers = {
            resource.name: Follower(
                resource,
                connection,
                Held(node_name),
                hand_on=handle,
                troubles=self._troubles,
                draw=draw,
                now=now,
                times=times,
                left_out=left_out if resource is resources.SERVICES else nobody_hears,
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
        """Follow until ``stop`` is set, in threads of their own; the connection is closed then."""
        for follower in self._followers.values():
            self._start(follower.resource.name, self._follow, follower, stop)
        self._start("cluster-synced", self._note_synced, stop)
        self._start("cluster-stop", self._close, stop)

    def _start(self, name: str, work: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=work, name=name, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def wait_synced(self, timeout: float | None = None) -> bool:
        """Wait until all that rules come from has been listed once; return whether it has.

        ServiceCIDRs, which a cluster may be without, or knft may not be allowed to see, are then known, or known not to
        be had. False after ``timeout`` seconds, and where everything ends before.
        """
        self._over.wait(timeout)
        return self.synced

    @property
    def synced(self) -> bool:
        """Whether all that rules come from has been listed once."""
        return (
            self._followers["services"].listed.is_set()
            and self._followers["endpointslices"].listed.is_set()
            and self._followers["servicecidrs"].answered.is_set()
        )

    def trouble(self, name: str) -> str:
        """Return what is wrong with following a resource (``services``, ``nodes``, ...) now, "" where nothing is."""
        return self._troubles.of(name)

    def listed(self, name: str) -> bool:
        """Tell whether a resource has been listed once."""
        return self._followers[name].listed.is_set()

    def join(self, timeout: float) -> bool:
        """Wait for the threads to end after ``stop`` was set; return whether they have."""
        deadline = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _follow(self, follower: Follower, stop: threading.Event) -> None:
        try:
            follower.run(stop)
        except Exception as error:  # noqa: BLE001 - raised again by the main thread
            # What breaks because everything is being closed is no failure.
            if not stop.is_set():
                self.failure = error
                self._failed(error)
                stop.set()

    def _note_synced(self, stop: threading.Event) -> None:
        events = (
            self._followers["services"].listed,
            self._followers["endpointslices"].listed,
            self._followers["servicecidrs"].answered,
        )
        for event in events:
            while not event.wait(0.2) and not stop.is_set():
                pass
        self._over.set()

    def _close(self, stop: threading.Event) -> None:
        stop.wait()
        self._connection.close()
        self._over.set()
