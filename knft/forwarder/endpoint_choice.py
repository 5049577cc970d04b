"""EndpointChoice: selects the endpoint of each connection to a NodePort on a loopback address."""

import random
from collections.abc import Sequence

Target = tuple[str, int]


class EndpointChoice:
    """The endpoints of one NodePort.

    With session affinity one endpoint gets all connections, because all have the same source address, until there was
    none for the timeout. The timeout restarts with each connection.
    """

    def __init__(self, endpoints: Sequence[Target], affinity_seconds: int) -> None:
        """``endpoints`` must not be empty; ``affinity_seconds`` is 0 without session affinity."""
        self._endpoints = endpoints
        self._affinity_seconds = affinity_seconds
        self._pinned: Target | None = None
        self._last_used = 0.0

    def update(self, endpoints: Sequence[Target], affinity_seconds: int) -> None:
        """Replace the endpoints; a changed timeout ends the affinity, as in kube-proxy."""
        self._endpoints = endpoints
        if affinity_seconds != self._affinity_seconds:
            self._affinity_seconds = affinity_seconds
            self._pinned = None

    def choose(self, now: float) -> Target:
        """Return the endpoint for a connection at a monotonic time."""
        is_pinned = self._pinned in self._endpoints and now - self._last_used <= self._affinity_seconds
        if self._pinned is None or not is_pinned:
            self._pinned = random.choice(self._endpoints)  # noqa: S311 - no secret
        chosen, self._last_used = self._pinned, now
        if not self._affinity_seconds:
            self._pinned = None
        return chosen
