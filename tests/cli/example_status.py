"""Examples of what ``knft status`` and ``knft history`` show, and where their golden texts are."""

from pathlib import Path

from msgspec import structs

from knft.cli.status_text import Leftovers
from knft.control.messages import (
    AuditStatus,
    Cause,
    ConntrackStatus,
    EndpointChange,
    FamilyStatus,
    FirstSync,
    History,
    LosingClaims,
    NamedProblems,
    ServerOutage,
    SourceStatus,
    Status,
    SyncFailure,
    TableChange,
)
from knft.leftovers.messages import leftover_warning
from knft.proxy_mode import Mode

GOLDEN = Path(__file__).parent / "golden"
WIDTHS = {"80": 80, "200": 200, "piped": None}
NOON = 1_795_521_600.0

HEALTHY = FamilyStatus(
    state="in force",
    node_address="192.0.2.11",
    last_sync=NOON - 3.2,
    last_sync_age=3.2,
    last_sync_seconds=0.0014,
    last_sync_is_full=False,
    pending_seconds=None,
    sync_error="",
    services_pending=0,
    endpoint_changes_pending=0,
    service_ports=12,
    endpoints=1,
    elements=120,
    quarantined=NamedProblems(),
    left_out=NamedProblems(),
    contested=LosingClaims(),
    removal_error="",
    repair_error="",
    foreign_changes=0,
    last_foreign_change="",
    last_foreign_change_age=None,
    check_delay=0.0,
    unchecked_change="",
    audit=AuditStatus(723.0),
)
TROUBLED = structs.replace(
    HEALTHY,
    state="failing",
    node_address="2001:db8:1::11",
    last_sync_is_full=True,
    pending_seconds=62.5,
    sync_error="the kernel refused the transaction: Cannot allocate memory",
    services_pending=1,
    endpoint_changes_pending=3,
    elements=None,
    quarantined=NamedProblems(1, {"shop/web:http": "Could not process rule: Cannot allocate memory"}),
    left_out=NamedProblems(1, {"shop/huge": "it has 200000 endpoints, more than 150000"}),
    contested=LosingClaims(
        22, ("Service port shop/b does not get frontend 203.0.113.5 80/TCP, which Service port shop/a owns",)
    ),
    removal_error="Device or resource busy",
    repair_error="the table differs from the expected rules in 2 positions: services, cluster-ips",
    foreign_changes=3,
    last_foreign_change="nft (pid 4711) changed the table: services, evil\x1b[31m",
    last_foreign_change_age=0.25,
    check_delay=4.0,
    audit=AuditStatus(30.0, error="the worker process died"),
)
READY = Status(
    knft="0.1.0",
    python="3.11.2",
    libnftables="1.0.6",
    kernel="6.18.44",
    mode="nftables",
    node="node-1",
    pid=4242,
    started=NOON - 7385.0,
    uptime=7385.0,
    problem="",
    source=SourceStatus("API server", "https://192.0.2.10:6443"),
    services=11,
    families={"IPv4": HEALTHY, "IPv6": structs.replace(HEALTHY, node_address="2001:db8:1::11", audit=None)},
    conntrack=ConntrackStatus(26_214, 262_144),
)
AWAY = structs.replace(
    READY,
    problem="a change of IPv6 is not in force",
    source=SourceStatus(
        "API server",
        "https://192.0.2.10:6443",
        ("cannot watch services, endpointslices, servicecidrs, nodes: 192.0.2.10:6443: Connection refused",),
    ),
    families={"IPv6": TROUBLED, "IPv4": HEALTHY},
    conntrack=ConntrackStatus(None, None),
)
UNFINISHED = structs.replace(
    READY,
    source=SourceStatus("manifests", "/etc/knft/manifests", files={"read": 3, "missing": 0}),
    families={
        "IPv4": structs.replace(
            HEALTHY,
            state="changed",
            foreign_changes=9,
            last_foreign_change="nft (pid 4710) changed the table: services",
            last_foreign_change_age=8.5,
            check_delay=8.0,
            unchecked_change="nft (pid 4711) changed the table: services",
        ),
        "IPv6": structs.replace(HEALTHY, state="pending", pending_seconds=7.9),
    },
)
STARTING = structs.replace(
    READY,
    problem="waiting for the Services and endpoints of the cluster",
    source=SourceStatus("API server", "https://192.0.2.10:6443", unlisted=("services", "nodes")),
    families={
        name: structs.replace(
            HEALTHY, state="waiting", last_sync=None, last_sync_age=None, last_sync_seconds=None, elements=None
        )
        for name in ("IPv4", "IPv6")
    },
)
STATES: dict[str, Status] = {"ready": READY, "troubled": AWAY, "unfinished": UNFINISHED, "starting": STARTING}


CHANGE = EndpointChange(
    service="shop/web",
    port="http",
    protocol="TCP",
    family="IPv4",
    gained=("10.244.1.21:8080",),
    lost=("10.244.1.20:8080",),
    gained_not_listed=0,
    lost_not_listed=0,
    cause=Cause(
        "EndpointSlice",
        "shop/web-abc12",
        "48213",
        is_deleted=False,
        triggered="2026-11-24T12:00:00Z",
        received=NOON + 0.105,
    ),
    in_force=NOON + 0.1232,
    seconds=0.0182,
)
SERVICE_DELETED = structs.replace(
    CHANGE,
    family="IPv6",
    gained=(),
    lost=("[fd00::20]:8080",),
    lost_not_listed=300,
    cause=Cause("Service", "shop/web", "", is_deleted=True, triggered="", received=NOON + 60),
    in_force=NOON + 61.5,
    seconds=1.5,
)
REFUSED = "192.0.2.10:6443: Connection refused"
HISTORY = History(
    (
        FirstSync("IPv4", 12, 120, 0, NOON - 7384),
        structs.replace(
            CHANGE, service="default/dns", port="", gained=("10.244.1.9:53",), lost=(), cause=None, seconds=None
        ),
        CHANGE,
        TableChange("IPv4", "nft (pid 4711) changed the table: services", NOON + 30, NOON + 30.05),
        TableChange("IPv6", "an audit found 3 elements or chains changed", NOON + 40),
        SERVICE_DELETED,
        ServerOutage("", REFUSED, NOON + 70, NOON + 184.5),
        ServerOutage("endpointslices", "the server answered 403: forbidden", NOON + 190),
        SyncFailure("IPv4", "cannot allocate memory", NOON + 200, 7, "the worker process died", NOON + 262),
        SyncFailure("IPv6", "cannot allocate memory", NOON + 201),
    ),
    dropped=7,
)


def audited(**families: AuditStatus | str | None) -> Status:
    """Return a status with an audit of each family, or with the family's state."""
    return structs.replace(
        READY,
        families={
            name: structs.replace(READY.families[name], state=audit)
            if isinstance(audit, str)
            else structs.replace(READY.families[name], audit=audit)
            for name, audit in families.items()
        },
    )


LEFTOVERS = Leftovers(
    (
        leftover_warning(Mode.IPTABLES, ["18 chains in iptables-nft", "18 chains in ip6tables-nft"]),
        leftover_warning(Mode.NFTABLES, ["ip kube-proxy"]),
    ),
    ("iptables-legacy-save: Permission denied (you must be root)",),
)
FOUND = audited(IPv4=AuditStatus(0.5, 3, names=("cluster-ips", "services")), IPv6=AuditStatus(0.4))


def golden(name: str) -> str:
    return (GOLDEN / f"{name}.txt").read_text()
