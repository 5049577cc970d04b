"""The expected metrics: name, type, labels and buckets (docs/behaviour/metrics.md); and metrics that must be absent."""

from msgspec import Struct


class ExpectedMetric(Struct, frozen=True):
    """The properties of a metric."""

    type: str
    labels: tuple[str, ...] = ()
    buckets: tuple[str, ...] = ()


SYNC_BUCKETS = (
    "0.001",
    "0.002",
    "0.004",
    "0.008",
    "0.016",
    "0.032",
    "0.064",
    "0.128",
    "0.256",
    "0.512",
    "1.024",
    "2.048",
    "4.096",
    "8.192",
    "16.384",
    "+Inf",
)
PROGRAMMING_BUCKETS = (
    "0.25", "0.5", *map(str, range(1, 60)), *map(str, range(60, 116, 5)), *map(str, range(120, 301, 30)), "+Inf",
)  # fmt: skip
REQUEST_BUCKETS = ("0.005", "0.025", "0.1", "0.25", "0.5", "1", "2", "4", "8", "15", "30", "60", "+Inf")
BY_FAMILY = ("ip_family",)

KUBE_PROXY_METRICS = {
    "kubeproxy_sync_proxy_rules_duration_seconds": ExpectedMetric("histogram", BY_FAMILY, SYNC_BUCKETS),
    "kubeproxy_sync_full_proxy_rules_duration_seconds": ExpectedMetric("histogram", BY_FAMILY, SYNC_BUCKETS),
    "kubeproxy_sync_partial_proxy_rules_duration_seconds": ExpectedMetric("histogram", BY_FAMILY, SYNC_BUCKETS),
    "kubeproxy_sync_proxy_rules_last_timestamp_seconds": ExpectedMetric("gauge", BY_FAMILY),
    "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds": ExpectedMetric("gauge", BY_FAMILY),
    "kubeproxy_network_programming_duration_seconds": ExpectedMetric("histogram", BY_FAMILY, PROGRAMMING_BUCKETS),
    "kubeproxy_sync_proxy_rules_endpoint_changes_pending": ExpectedMetric("gauge"),
    "kubeproxy_sync_proxy_rules_endpoint_changes_total": ExpectedMetric("counter"),
    "kubeproxy_sync_proxy_rules_service_changes_pending": ExpectedMetric("gauge"),
    "kubeproxy_sync_proxy_rules_service_changes_total": ExpectedMetric("counter"),
    "kubeproxy_sync_proxy_rules_no_local_endpoints_total": ExpectedMetric("gauge", ("ip_family", "traffic_policy")),
    "kubeproxy_proxy_healthz_total": ExpectedMetric("counter", ("code",)),
    "kubeproxy_proxy_livez_total": ExpectedMetric("counter", ("code",)),
    "kubeproxy_sync_proxy_rules_nftables_sync_failures_total": ExpectedMetric("counter", BY_FAMILY),
    "kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total": ExpectedMetric("counter", BY_FAMILY),
    "kubeproxy_conntrack_reconciler_sync_duration_seconds": ExpectedMetric("histogram", BY_FAMILY, SYNC_BUCKETS),
    "kubeproxy_conntrack_reconciler_deleted_entries_total": ExpectedMetric("counter", BY_FAMILY),
    "rest_client_requests_total": ExpectedMetric("counter", ("code", "host", "method")),
    "rest_client_request_duration_seconds": ExpectedMetric("histogram", ("host", "verb"), REQUEST_BUCKETS),
}

KNFT_METRICS = {
    "knft_build_info": ExpectedMetric("gauge", ("python", "version")),
    "knft_sync_kernel_duration_seconds": ExpectedMetric("histogram", BY_FAMILY, SYNC_BUCKETS),
    "knft_elements_sent_total": ExpectedMetric("counter", ("ip_family", "operation")),
    "knft_chains_written_total": ExpectedMetric("counter", BY_FAMILY),
    "knft_service_ports": ExpectedMetric("gauge", BY_FAMILY),
    "knft_hashed_service_ports": ExpectedMetric("gauge", BY_FAMILY),
    "knft_too_large_services": ExpectedMetric("gauge", BY_FAMILY),
    "knft_quarantined_service_ports": ExpectedMetric("gauge", BY_FAMILY),
    "knft_contested_frontends": ExpectedMetric("gauge", BY_FAMILY),
    "knft_removal_refused": ExpectedMetric("gauge", BY_FAMILY),
    "knft_repair_failed": ExpectedMetric("gauge", BY_FAMILY),
    "knft_foreign_objects_removed_total": ExpectedMetric("counter", BY_FAMILY),
    "knft_foreign_changes_total": ExpectedMetric("counter", BY_FAMILY),
    "knft_check_delay_seconds": ExpectedMetric("gauge", BY_FAMILY),
    "knft_table_left_to_older_version": ExpectedMetric("gauge", BY_FAMILY),
    "knft_audit_differences_total": ExpectedMetric("counter", BY_FAMILY),
    "knft_libnftables_starts_total": ExpectedMetric("counter"),
    "knft_log_lines_dropped_total": ExpectedMetric("counter"),
    "knft_drain_ended_connections_total": ExpectedMetric("counter", BY_FAMILY),
    "knft_events_dropped_total": ExpectedMetric("counter"),
    "knft_health_check_services": ExpectedMetric("gauge", BY_FAMILY),
    "knft_health_check_listen_failures_total": ExpectedMetric("counter", BY_FAMILY),
    "knft_conntrack_entries": ExpectedMetric("gauge"),
    "knft_conntrack_max_entries": ExpectedMetric("gauge"),
    "knft_conntrack_insert_failures_total": ExpectedMetric("counter"),
    "knft_conntrack_drops_total": ExpectedMetric("counter"),
    "knft_conntrack_early_drops_total": ExpectedMetric("counter"),
}

SERVICE_PORT = ("namespace", "port", "service")
SERVICE_COUNTER_METRICS = {
    "knft_service_connections_total": ExpectedMetric("counter", SERVICE_PORT),
    "knft_service_refused_connections_total": ExpectedMetric("counter", ("action", *SERVICE_PORT)),
    "knft_service_counters_left_out": ExpectedMetric("gauge"),
    "knft_service_counters_last_read_timestamp_seconds": ExpectedMetric("gauge"),
}
"""Those with ``--service-counters``."""
INVALID_PACKET_METRICS = {"kubeproxy_iptables_ct_state_invalid_dropped_packets_total": ExpectedMetric("counter")}
"""Those with ``--drop-invalid-packets``."""
LOCALHOST_NODEPORT_METRICS = {
    "kubeproxy_nftables_localhost_nodeport_listeners": ExpectedMetric("gauge", BY_FAMILY),
    "kubeproxy_nftables_localhost_nodeport_listener_creation_failures_total": ExpectedMetric("counter", BY_FAMILY),
}
"""Those with the gate KubeProxyNFTablesLocalhostNodePorts, if loopback addresses accept NodePorts."""
LOCALHOST_REJECTION_METRICS = {
    "kubeproxy_nftables_localhost_nodeport_rejected_packets_total": ExpectedMetric("counter", (*BY_FAMILY, "protocol")),
}
"""Those with the gate KubeProxyNFTablesLocalhostNodePorts."""

SLI_METRICS = {
    "kubernetes_healthcheck": ExpectedMetric("gauge", ("name", "type")),
    "kubernetes_healthchecks_total": ExpectedMetric("counter", ("name", "status", "type")),
}

OTHER_MODE = "only in kube-proxy's other modes"
ABSENT_METRICS = {
    "kubeproxy_sync_proxy_rules_iptables_restore_failures_total": OTHER_MODE,
    "kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total": OTHER_MODE,
    "kubeproxy_sync_proxy_rules_iptables_total": OTHER_MODE,
    "kubeproxy_sync_proxy_rules_iptables_last": OTHER_MODE,
    "kubeproxy_iptables_localhost_nodeports_accepted_packets_total": OTHER_MODE,
    **dict.fromkeys((*LOCALHOST_NODEPORT_METRICS, *LOCALHOST_REJECTION_METRICS), "the feature gate is off by default"),
    "kubernetes_build_info": "version skew alerts compare it with the API server's version; knft has knft_build_info",
    "kubernetes_feature_enabled": "a single feature gate changes what knft does; `/configz` has its value",
    "registered_metrics_total": "describes kube-proxy's own registry",
    "hidden_metrics_total": "describes kube-proxy's own registry",
    "disabled_metrics_total": "describes kube-proxy's own registry",
    "go_goroutines": "Go runtime; knft has python_* and process_*",
}

PROCESS_METRICS = {
    "process_virtual_memory_bytes", "process_resident_memory_bytes", "process_start_time_seconds",
    "process_cpu_seconds_total", "process_open_fds", "process_max_fds",
    "python_info", "python_gc_objects_collected_total", "python_gc_objects_uncollectable_total",
    "python_gc_collections_total",
}  # fmt: skip
