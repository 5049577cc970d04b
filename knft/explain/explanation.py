"""The explanation as a value: the JSON output of ``knft explain``; ``explanation.schema.json`` is generated from it."""

from typing import Literal

from msgspec import Struct

from knft.explain.outcomes import ClientOutcome
from knft.explain.sentences import Statement
from knft.model.endpoint_pod import EndpointState
from knft.protocols import Protocol


class ExplainedFrontend(Struct, frozen=True):
    """A frontend that a Service port claims.

    ``what`` is the frontend as WHAT may name it, ``kind`` a description such as ``the cluster IP``, and ``port`` its
    number. ``claims`` tell which other Service ports claim it. ``at`` is the address at which ``outcomes`` hold: of a
    NodePort, an address of the node that accepts it. ``outcomes`` are empty if another Service port owns the frontend.
    """

    what: str
    kind: str
    port: int
    is_owned: bool
    claims: tuple[Statement, ...]
    at: str
    outcomes: tuple[ClientOutcome, ...]


class EndpointUse(Struct, frozen=True):
    """Whether traffic of one kind uses an endpoint, and why.

    ``traffic`` is ``the cluster IP``, ``external frontends``, or, if externalTrafficPolicy is Local, ``external
    frontends from outside`` and ``external frontends from pods and this node``. If the rules do not tell pods from
    other hosts, the last two end in ``from any host`` and ``from this node``.
    """

    traffic: str
    is_used: bool
    reason: Statement


class ExplainedEndpoint(Struct, frozen=True):
    """An endpoint; ``pod``, ``node`` and ``zone`` are empty if they are unknown.

    ``state`` is ready, not ready, serving (terminating but serving) or terminating; it is empty and ``uses`` are, if
    only the kernel's rules are known. ``clients`` counts the clients with an affinity entry for it, ``connections``
    the conntrack entries that lead to it; both are null if they were not counted.
    """

    endpoint: str
    pod: str
    node: str
    zone: str
    state: Literal["", EndpointState]
    is_used: bool
    uses: tuple[EndpointUse, ...]
    clients: int | None = None
    connections: int | None = None


class ExplainedPort(Struct, frozen=True):
    """A Service port in one family.

    ``conclusion`` tells how many endpoints get connections, or why none does. ``problems`` are statements about what
    keeps clients from endpoints. ``other_endpoints`` counts the endpoints that are not listed, because WHAT names one
    of them. ``load_balancing`` is how an endpoint is chosen (random, maglev or source-hash), empty if only the kernel's
    rules are known and have no endpoint. ``source_ranges`` are the sources that may reach its load balancer IPs, all if
    empty. ``clients`` counts the affinity entries for its endpoints, ``connections`` the conntrack entries of its
    frontends; both are null if they were not counted. ``has_more_clients`` is true if only the first affinity entries
    of the node were counted, because it has too many.
    """

    port: str
    protocol: Protocol
    family: str
    conclusion: Statement
    problems: tuple[Statement, ...]
    frontends: tuple[ExplainedFrontend, ...]
    endpoints: tuple[ExplainedEndpoint, ...]
    other_endpoints: int
    internal_traffic_policy: str
    external_traffic_policy: str
    load_balancing: str
    affinity_seconds: int | None
    source_ranges: tuple[str, ...]
    notes: tuple[Statement, ...]
    clients: int | None = None
    has_more_clients: bool = False
    connections: int | None = None


class PinnedClient(Struct, frozen=True):
    """The endpoint to which session affinity sends the client of --client, at ``frontends`` of a Service port.

    ``pod`` is empty if it is unknown. ``seconds`` are left until the affinity entry expires; each new connection of the
    client restarts its timeout.
    """

    client: str
    port: str
    protocol: Protocol
    family: str
    endpoint: str
    pod: str
    frontends: tuple[str, ...]
    seconds: int


class Explanation(Struct, frozen=True):
    """What WHAT is, and what its packets get.

    ``found`` is false if no Service, frontend or endpoint is WHAT. ``conclusion`` are the statements of the first
    line. ``source`` names where frontends and endpoints come from, ``warnings`` what may be wrong or missing.
    ``outcomes`` are those of packets to WHAT if it is an address that is no frontend. ``kernel`` tells whether the
    kernel's rules agree, empty unless they were compared. ``sync`` tells why the running knft may not have brought its
    objects in force, empty if it has. ``pinned`` are the endpoints of the client of --client. ``version`` is the
    version of this format.
    """

    what: str
    found: bool
    conclusion: tuple[Statement, ...]
    source: str
    node: str
    zone: str
    warnings: tuple[str, ...]
    ports: tuple[ExplainedPort, ...]
    outcomes: tuple[ClientOutcome, ...]
    kernel: tuple[Statement, ...] = ()
    sync: tuple[Statement, ...] = ()
    pinned: tuple[PinnedClient, ...] = ()
    version: int = 1
