"""The messages between Forwarder and its process.

They are JSON in both directions, so that the process need not load msgspec.
"""

from msgspec import Struct

Change = tuple[str, int, str, tuple[tuple[str, int], ...], int]
"""Family, NodePort, Service port, endpoints and affinity timeout; a NodePort without endpoints is closed."""


class ListenFailure(Struct, frozen=True):
    """A NodePort that could not be opened, and why."""

    family: str
    port: int
    service: str
    reason: str


class Report(Struct, frozen=True):
    """What the process serves.

    ``listeners`` and ``listen_failures``, which counts attempts since the start of the process, are by family.
    ``refused`` counts connections beyond the limit. ``problem`` is an unexpected error, "" if there is none.
    """

    listeners: dict[str, int] = {}
    listen_failures: dict[str, int] = {}
    failed: tuple[ListenFailure, ...] = ()
    connections: int = 0
    refused: int = 0
    problem: str = ""
