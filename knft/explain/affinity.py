"""Adds the affinity entries in the kernel to an explanation: the clients of each endpoint, and the endpoint of one."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol

from msgspec import Struct
from msgspec.structs import replace

from knft.durations import format_duration
from knft.explain.explanation import ExplainedFrontend, ExplainedPort, Explanation, PinnedClient
from knft.explain.outcomes import Probes
from knft.explain.sentences import Sentence, Statement, state
from knft.explain.words import listed
from knft.families import Family
from knft.interpret.outcomes import AffinityEntry

_CLIENTS = " affinity-clients"
"""The end of the name of the set of clients in rules (``knft.render.names.CLIENTS``)."""


class Client(Struct, frozen=True):
    """The client of --client."""

    family: Family
    address: str


class Entries(Protocol):
    """The affinity entries in the kernel."""

    def count(self, family: Family, ids: frozenset[int]) -> tuple[dict[int, int], bool]:
        """Return the number of clients by endpoint ID, and whether these are all."""

    def seconds(self, family: Family, ids: frozenset[int], client: str) -> dict[int, int]:
        """Return the seconds until the entries of a client expire, by endpoint ID."""


class _PortEntries(NamedTuple):
    """The entries of a Service port: the number by endpoint; those of the client, and the time of each by endpoint."""

    clients: dict[str, int]
    is_complete: bool
    of_client: frozenset[AffinityEntry]
    seconds: dict[str, int]


def with_affinity(
    found: Explanation, kernel: Callable[[], Mapping[Family, Probes]], entries: Entries, client: Client | None
) -> Explanation:
    """Return an explanation with the affinity entries of its Service ports, and the endpoint of ``client``.

    ``kernel`` returns the rules in the kernel, which know the IDs of endpoints.
    """
    ports = found.ports
    sticky = {number: port for number, port in enumerate(ports) if port.affinity_seconds is not None}
    probes = kernel() if sticky else {}
    of_port = _read(sticky, probes, entries, client)
    explained = tuple(
        _with_clients(port, of_port[number]) if number in of_port else port for number, port in enumerate(ports)
    )
    found = replace(found, ports=explained)
    if client is None or not ports:
        return found
    pinned = tuple(
        each
        for number, read in of_port.items()
        if explained[number].family == client.family.value
        for each in _pinned(client, explained[number], read, probes[client.family])
    )
    statements = tuple(dict.fromkeys(_client_statements(client, found, pinned)))
    return replace(found, pinned=pinned, conclusion=(*statements, *found.conclusion))


def _read(
    ports: Mapping[int, ExplainedPort], probes: Mapping[Family, Probes], entries: Entries, client: Client | None
) -> dict[int, _PortEntries]:
    """Return the entries of Service ports in families that have rules; the set of each family is read once."""
    of_port: dict[int, _PortEntries] = {}
    for family, rules in probes.items():
        endpoints = {number: _endpoints(port, rules) for number, port in ports.items() if port.family == family.value}
        ids = frozenset(key[0] for each in endpoints.values() for _, key in each)
        if not ids:
            continue
        counts, is_complete = entries.count(family, ids)
        is_of_client = client is not None and client.family is family
        seconds = entries.seconds(family, ids, client.address) if client is not None and is_of_client else {}
        for number, each in endpoints.items():
            of_client = frozenset(entry for entry in each if entry[1][0] in seconds)
            of_port[number] = _PortEntries(
                {endpoint: counts.get(key[0], 0) for (_, key), endpoint in each.items()},
                is_complete,
                of_client,
                {each[entry]: seconds[entry[1][0]] for entry in of_client},
            )
    return of_port


def _endpoints(port: ExplainedPort, probes: Probes) -> dict[AffinityEntry, str]:
    """Return the endpoints of a Service port in the kernel's rules by the affinity entries of their clients."""
    found: dict[AffinityEntry, str] = {}
    for each in _reachable_frontends(port):
        found |= probes.affinity_endpoints(each.at, each.port, port.protocol)
    return {entry: endpoint for entry, endpoint in found.items() if entry[0].endswith(_CLIENTS)}


def _reachable_frontends(port: ExplainedPort) -> Iterator[ExplainedFrontend]:
    return (each for each in port.frontends if each.is_owned and each.at)


def _with_clients(port: ExplainedPort, read: _PortEntries) -> ExplainedPort:
    endpoints = tuple(replace(each, clients=read.clients.get(each.endpoint, 0)) for each in port.endpoints)
    total = sum(read.clients.values())
    return replace(port, endpoints=endpoints, clients=total, has_more_clients=not read.is_complete)


def _pinned(client: Client, port: ExplainedPort, entries: _PortEntries, probes: Probes) -> Iterator[PinnedClient]:
    """Yield the endpoints that a client is sent to, each with the frontends at which it is."""
    at: dict[str, list[str]] = {}
    for each in _reachable_frontends(port) if entries.of_client else ():
        reached = probes.endpoints_of_client(client.address, entries.of_client, each.at, each.port, port.protocol)
        for endpoint in reached & entries.seconds.keys():
            at.setdefault(endpoint, []).append(each.what)
    pods = {each.endpoint: each.pod for each in port.endpoints}
    for endpoint, frontends in at.items():
        yield PinnedClient(
            client.address,
            port.port,
            port.protocol,
            port.family,
            endpoint,
            pods.get(endpoint, ""),
            tuple(frontends),
            entries.seconds[endpoint],
        )


def _client_statements(client: Client, found: Explanation, pinned: Iterable[PinnedClient]) -> Iterator[Statement]:
    """Yield to which endpoints a client is pinned, and for each other Service port why it is to none."""
    of_family = [port for port in found.ports if port.family == client.family.value]
    if not of_family:
        values = {"what": found.what, "family": client.family.value}
        yield state(Sentence.NO_FRONTEND_OF_FAMILY, client=client.address, **values)
    for each in pinned:
        yield state(
            Sentence.PINNED,
            client=client.address,
            endpoint=each.endpoint + (f" (pod {each.pod})" if each.pod else ""),
            frontends=listed(each.frontends),
            time=format_duration(each.seconds * 10**9),
        )
    have_one = {(each.port, each.protocol) for each in pinned}
    for port in of_family:
        if (port.port, port.protocol) not in have_one:
            sentence = Sentence.NO_AFFINITY if port.affinity_seconds is None else Sentence.NOT_PINNED
            yield state(sentence, client=client.address, port=port.port)
