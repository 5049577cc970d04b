"""The answers of the control socket, which ``-o json`` prints (docs/operations/status.md).

Times are seconds since 1970; ages and durations are differences of the monotonic clock, in seconds.
"""

from msgspec import Struct

STATUS_PATH, HISTORY_PATH, COUNTERS_PATH = "/status", "/history", "/counters"
AUDIT_PATH, AUDITS_PATH = "/audit", "/audits"
"""The path that requests an audit, and the path that only tells how many have ended."""
OBJECTS_PATH = "/objects/"
"""The beginning of the paths in ``knft.control.objects``."""
PODS_PATH = f"{OBJECTS_PATH}pods/"
"""The beginning of the paths for which knft asks the API server."""
MAX_NAMED = 20
"""The most Services that a list of an answer names; the counts include all."""


def socket_name(port_id: int) -> str:
    """Return the abstract name of the control socket of the process that holds the instance lock.

    ``port_id`` is that of the lock's socket, so that another process can hardly take the name before.
    """
    return f"\0knft/{port_id:08x}"


class SourceStatus(Struct, frozen=True):
    """Where the objects come from: ``kind`` is ``API server`` or ``manifests``, ``name`` the URL or the directory.

    ``problems`` are why resources cannot be watched, or what is wrong with the manifests. ``files`` counts the
    manifests by state. ``unlisted`` are the resources that the API server has not listed since the start.
    ``unwatched_seconds`` says for how long resources have not been watched, of those that cannot be watched.
    ``last_message_age`` is the time since its last answer, event or bookmark, which it sends about once a minute.
    """

    kind: str
    name: str
    problems: tuple[str, ...] = ()
    files: dict[str, int] = {}
    unlisted: tuple[str, ...] = ()
    unwatched_seconds: dict[str, float] = {}
    last_message_age: float | None = None


class NamedProblems(Struct, frozen=True):
    """How many Services or Service ports have a problem, and the reasons for some of them, by name."""

    count: int = 0
    reasons: dict[str, str] = {}


class LosingClaims(Struct, frozen=True):
    """How many claims to frontends lose to another Service, and the texts of some of them."""

    count: int = 0
    texts: tuple[str, ...] = ()


class AuditStatus(Struct, frozen=True):
    """The last audit: its age, how many elements and chains differed, and why it failed, if it did.

    ``names`` are some of the chains that differed, and of the sets and maps of the elements.
    """

    age: float
    differences: int = 0
    error: str = ""
    names: tuple[str, ...] = ()


class Audits(Struct, frozen=True):
    """How many audits have ended since the start, and the number of the requested one, None if none is requested."""

    ended: int
    requested: int | None = None


class LoopbackStatus(Struct, frozen=True):
    """How many NodePorts are served on the loopback address, and why others cannot be, by NodePort and Service port.

    ``problem`` tells why the process that serves them does not run, "" if it does or is not needed.
    """

    listeners: int
    failed: NamedProblems
    problem: str = ""


class FamilyStatus(Struct, frozen=True):
    """One IP family. ``state`` is ``waiting``, ``in force``, ``pending``, ``changed``, ``failing`` or ``left``.

    ``last_sync`` is None before the first successful sync; ``elements`` is None while a sync runs or after a failure.
    ``unchecked_change`` is what other programs changed in the table, "" after the sync that checks it. ``loopback`` is
    None if NodePorts are not served on the loopback address.
    """

    state: str
    node_address: str | None
    last_sync: float | None
    last_sync_age: float | None
    last_sync_seconds: float | None
    last_sync_is_full: bool | None
    pending_seconds: float | None
    sync_error: str
    services_pending: int
    endpoint_changes_pending: int
    service_ports: int
    endpoints: int
    elements: int | None
    quarantined: NamedProblems
    left_out: NamedProblems
    contested: LosingClaims
    removal_error: str
    repair_error: str
    foreign_changes: int
    last_foreign_change: str
    last_foreign_change_age: float | None
    check_delay: float
    unchecked_change: str
    audit: AuditStatus | None
    loopback: LoopbackStatus | None = None


class ConntrackStatus(Struct, frozen=True):
    """Conntrack's entries in this network namespace, and their maximum; None if the kernel does not tell."""

    entries: int | None
    maximum: int | None


class Status(Struct, frozen=True):
    """The answer to ``knft status``; ``problem`` is why knft is not ready, "" if it is.

    ``libnftables`` is that library's version, "" if it cannot be read.
    """

    knft: str
    python: str
    libnftables: str
    kernel: str
    mode: str
    node: str
    pid: int
    started: float
    uptime: float
    problem: str
    source: SourceStatus
    services: int
    families: dict[str, FamilyStatus]
    conntrack: ConntrackStatus


class Cause(Struct, frozen=True):
    """The event that changed a Service port; ``resource_version`` is "" if a list or a manifest told of the change.

    ``triggered`` is the time of the EndpointSlice's annotation ``last-change-trigger-time``, "" without it.
    """

    kind: str
    name: str
    resource_version: str
    is_deleted: bool
    triggered: str
    received: float


class EndpointChange(Struct, frozen=True, tag="endpoints", tag_field="type"):
    """Endpoints that a Service port gained or lost, by one event.

    ``in_force`` is when the kernel had the new rules, and ``seconds`` the time from the event's arrival until then: so
    long did new connections still reach the lost endpoints. Endpoints beyond those listed are only counted.
    """

    service: str
    port: str
    protocol: str
    family: str
    gained: tuple[str, ...]
    lost: tuple[str, ...]
    gained_not_listed: int
    lost_not_listed: int
    cause: Cause | None
    in_force: float
    seconds: float | None


class TableChange(Struct, frozen=True, tag="table", tag_field="type"):
    """What other programs changed in a table, or what an audit found changed.

    ``at`` is when knft was notified of the first change, or when the audit ended; ``repaired`` when knft had read the
    table back and it was right, None before that.
    """

    family: str
    description: str
    at: float
    repaired: float | None = None


class FirstSync(Struct, frozen=True, tag="first sync", tag_field="type"):
    """The first sync of a family, which brought all Services in force; the history begins with it."""

    family: str
    service_ports: int
    elements_added: int
    elements_removed: int
    in_force: float


class SyncFailure(Struct, frozen=True, tag="sync failure", tag_field="type"):
    """Failed syncs of a family, one after the other.

    ``error`` is why the first one failed, ``last_error`` why the last one did, "" for the same reason. ``began`` is
    when the first one had failed, ``ended`` when a sync succeeded again, None before that.
    """

    family: str
    error: str
    began: float
    syncs: int = 1
    last_error: str = ""
    ended: float | None = None


class ServerOutage(Struct, frozen=True, tag="API server", tag_field="type"):
    """The API server could not be watched, or only a ``resource``, which is "" for the server as a whole.

    ``problem`` is the first reason; ``ended`` is when it was watched again, None before that.
    """

    resource: str
    problem: str
    began: float
    ended: float | None = None


Entry = EndpointChange | TableChange | FirstSync | SyncFailure | ServerOutage


def entry_time(entry: Entry) -> float:
    """Return when an entry happened, or began, in seconds since 1970."""
    match entry:
        case TableChange():
            return entry.at
        case SyncFailure() | ServerOutage():
            return entry.began
        case _:
            return entry.in_force


class History(Struct, frozen=True):
    """The answer to ``knft history``: the oldest entry first.

    ``dropped`` counts entries that are gone, because the memory of the history is bounded. ``node`` is the node's name.
    """

    entries: tuple[Entry, ...]
    dropped: int = 0
    node: str = ""


class SyncTotals(Struct):
    """The syncs of a family since the start, and how long they took; failed ones are included.

    ``latencies`` counts changes of Pods and Services whose programming latency is known, and ``latency_seconds`` is the
    sum of these latencies.
    """

    syncs: int = 0
    failures: int = 0
    seconds: float = 0.0
    latencies: int = 0
    latency_seconds: float = 0.0


class FrontendCounters(Struct, frozen=True):
    """The connections to a frontend of a Service port; ``address`` is "" for a NodePort.

    ``refused`` are those of ``new`` that were rejected or dropped.
    """

    namespace: str
    service: str
    port: str
    protocol: str
    address: str
    number: int
    family: str
    new: int
    refused: int


class Counters(Struct, frozen=True):
    """The answer to ``knft top``. ``asked`` and ``read`` are times of the same monotonic clock, in seconds.

    ``read`` is when knft read the frontends' counters last, None if it counts no connections or has not read them yet;
    it reads them every ``interval`` seconds. Frontends without connections are not listed. ``node`` is the node's name.
    """

    asked: float
    read: float | None
    interval: float
    is_counting: bool
    syncs: dict[str, SyncTotals]
    frontends: tuple[FrontendCounters, ...] = ()
    node: str = ""
