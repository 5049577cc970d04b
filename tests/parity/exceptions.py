"""Everything in which knft's metrics and conntrack entries differ from kube-proxy's on purpose, with the reasons.

A run of the default seeds must need each exception (``ExceptionUses.unused``). docs/operations/metrics.md has the
tables of ``metric_table``, docs/behaviour/conntrack.md that of ``conntrack_table``.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Literal, NamedTuple

from tests.cluster.kube_proxy import Mode

BOTH_MODES: tuple[Mode, ...] = ("nftables", "iptables")


class MetricException(NamedTuple):
    """Shell patterns of the names of metrics that only one side has, why, and beside which modes of kube-proxy."""

    patterns: tuple[str, ...]
    reason: str
    modes: tuple[Mode, ...] = BOTH_MODES


ONLY_KUBE_PROXY = (
    MetricException(("go_*",), "knft has no Go runtime; `process_*` and `python_*` give similar values"),
    MetricException(
        ("process_network_*", "process_virtual_memory_max_bytes"), "the Python client library does not have them"
    ),
    MetricException(
        ("kubernetes_build_info",),
        "version skew alerts compare it with the API server's version; knft has `knft_build_info`",
    ),
    MetricException(
        ("kubernetes_feature_enabled",), "a single feature gate changes what knft does; `/configz` has its value"
    ),
    MetricException(
        ("registered_metrics_total", "hidden_metrics_total", "disabled_metrics_total", "cardinality_enforcement_*"),
        "describe kube-proxy's own metrics registry",
    ),
    MetricException(("apiserver_*", "aggregator_*", "workqueue_*"), "belong to libraries that kube-proxy contains"),
    MetricException(
        ("rest_client_exec_plugin_*", "rest_client_rate_limiter_*", "rest_client_transport_*"),
        "describe internals of client-go",
    ),
    MetricException(
        ("rest_client_request_size_bytes", "rest_client_response_size_bytes"),
        "knft does not measure sizes of requests",
    ),
    MetricException(("kubeproxy_*iptables_*",), "describe the rules of mode iptables", ("iptables",)),
)
"""The metrics of kube-proxy that knft does not have."""

ONLY_KNFT = (
    MetricException(("knft_*",), "describe what only knft does"),
    MetricException(("python_*",), "take the place of `go_*`"),
)
"""The metrics of knft that kube-proxy does not have."""

Fate = Literal["keeps", "deletes", "keeps or deletes"]
"""What a proxy does with a conntrack entry; the last one if it depends on the order in which events arrive."""


class ConntrackException(NamedTuple):
    """UDP entries that the proxies treat differently: which, what kube-proxy and knft do with them, and why."""

    entries: str
    kube_proxy: Fate
    knft: Fate
    reason: str


SCALED_TO_ZERO = ConntrackException(
    "of a Service port without serving endpoints", "keeps", "deletes", "kube-proxy 1.37 deletes it, except at NodePorts"
)
SERVICE_REMOVED = ConntrackException(
    "of a deleted Service, or a deleted port of one", "keeps", "deletes", "kube-proxy 1.38 deletes it"
)
OTHER_HOST = ConntrackException(
    "to another host, at a port that equals a NodePort", "deletes", "keeps", "kube-proxy compares the port alone"
)
EVENT_ORDER = ConntrackException(
    "of an endpoint that leaves its slice, or of a Service that is created again",
    "keeps or deletes",
    "keeps or deletes",
    "a sync between two events of such a change may find the entry stale",
)
CONNTRACK = {
    "scaled to zero": SCALED_TO_ZERO,
    "Service removed": SERVICE_REMOVED,
    "other host": OTHER_HOST,
    "event order": EVENT_ORDER,
}
"""The exceptions by name. The test checks what each proxy does with the entries of the first three."""


class ExceptionUses:
    """Counts how often each exception was needed."""

    def __init__(self) -> None:
        """Begin at zero."""
        self._metrics = Counter[tuple[str, Mode]]()
        self._conntrack = Counter[ConntrackException]()

    def is_excepted(self, metric: str, exceptions: Sequence[MetricException], mode: Mode) -> bool:
        """Tell whether an exception for a mode covers a metric that only one side has, and count the patterns."""
        patterns = [pattern for one in exceptions if mode in one.modes for pattern in one.patterns]
        found = [pattern for pattern in patterns if fnmatchcase(metric, pattern)]
        self._metrics.update((pattern, mode) for pattern in found)
        return bool(found)

    def count_entry(self, exception: ConntrackException) -> None:
        """Count a conntrack entry."""
        self._conntrack[exception] += 1

    def unused(self) -> list[str]:
        """Return the names of the exceptions that nothing needed."""
        patterns = [
            (pattern, mode) for one in (*ONLY_KUBE_PROXY, *ONLY_KNFT) for pattern in one.patterns for mode in one.modes
        ]
        return [
            *(f"metric {pattern} beside mode {mode}" for pattern, mode in patterns if not self._metrics[pattern, mode]),
            *(f"conntrack entry: {name}" for name, exception in CONNTRACK.items() if not self._conntrack[exception]),
        ]

    def __str__(self) -> str:
        """Return the numbers of the conntrack entries."""
        return ", ".join(f"{name}: {self._conntrack[exception]}" for name, exception in CONNTRACK.items())


def metric_table(exceptions: Sequence[MetricException]) -> Iterator[str]:
    """Yield the lines of a Markdown table."""
    yield "| metric | modes of kube-proxy | reason |"
    yield "| --- | --- | --- |"
    for patterns, reason, modes in exceptions:
        yield f"| {', '.join(f'`{pattern}`' for pattern in patterns)} | {', '.join(modes)} | {reason} |"


def conntrack_table() -> Iterator[str]:
    """Yield the lines of a Markdown table."""
    yield "| UDP entry | knft | kube-proxy 1.36 | reason |"
    yield "| --- | --- | --- | --- |"
    for entries, kube_proxy, knft, reason in CONNTRACK.values():
        yield f"| {entries} | {knft} | {kube_proxy} | {reason} |"
