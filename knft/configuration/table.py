"""Every flag and configuration field of kube-proxy, and knft's own flags, with their meaning in knft.

The command line, the reading of files and the tables in docs/configuration.md are made from these options.
See docs/behaviour/configuration.md#file and docs/behaviour/configuration.md#flags.
"""

from collections.abc import Iterator

from knft.configuration.gates import GATES_DESCRIPTION
from knft.configuration.options import INT32_RANGE, Kind, Option, Support
from knft.detect_local import DETECT_LOCAL_MODES

BOOL, INTEGER, FLOAT, STRING = Kind.BOOL, Kind.INTEGER, Kind.FLOAT, Kind.STRING
DURATION, LIST, VMODULE = Kind.DURATION, Kind.LIST, Kind.VMODULE
SUPPORTED, IGNORED, REJECTED = Support.SUPPORTED, Support.IGNORED, Support.REJECTED

IPTABLES, IPVS, NFTABLES = ("", "iptables"), ("ipvs",), ("nftables",)
IPTABLES_OR_IPVS = (*IPTABLES, *IPVS)

MASQUERADE_BIT_RANGE = (0, 31)

MIN_SYNC_PERIOD = "20ms"
"""A sync of knft costs what changed: see docs/performance.md#latency."""
_KUBE_PROXYS_MINIMUM = "1s"
"""kube-proxy's default, which it writes into the sections of all modes."""

_JSON = "knft always requests JSON"
_NO_IPVS = "knft does not use IPVS"
_CONNTRACK_TIMEOUTS = f"{_NO_IPVS}; conntrack's timeouts apply"
_NO_LOCALHOST = "only the feature gate KubeProxyNFTablesLocalhostNodePorts serves NodePorts on loopback addresses"
_UNBUFFERED = "knft writes every log line at once, to one stream"
_STDERR = "knft has no options for the destination and the header of log lines"
_WINDOWS = "an option of kube-proxy on Windows; knft runs on Linux"
_NOT_SERVED = "an empty value of the flag disables the server; with --manifests it is disabled unless the flag is given"
_MASQUERADE_BIT = "bit of the packet mark that requests masquerading"
_OWN_SECTION = "mode nftables uses the field in section nftables instead"

KNFT_OPTIONS = (
    Option("", ("--manifests",), STRING, SUPPORTED, "directory of YAML and JSON manifests to watch, instead of an API "
           "server; health checks and metrics are served only if --healthz-bind-address or --metrics-bind-address is "
           "given", is_knft_only=True, applies_with_file=True, metavar="DIR"),
    Option("", ("--once",), BOOL, SUPPORTED, "sync once and exit; needs --manifests", is_knft_only=True,
           applies_with_file=True),
    Option("", ("--wait-for-lock",), BOOL, SUPPORTED, "if another knft process runs in this network namespace, wait "
           "until it exits; otherwise knft exits with an error", is_knft_only=True, applies_with_file=True),
    Option("", ("--node",), STRING, SUPPORTED, "name of this node, as in nodeName of EndpointSlices; same as "
           "--hostname-override",
           is_knft_only=True, applies_with_file=True, metavar="NAME"),
    Option("", ("--node-ip",), LIST, SUPPORTED, "address of this node, at most one of each IP family",
           is_knft_only=True, applies_with_file=True, metavar="IP"),
    Option("", ("--allow-node-mismatch",), BOOL, SUPPORTED, "start even if the node's name or addresses do not fit the "
           "Node objects or this machine, and rules are removed because of that, or if --service-cidr contains "
           "addresses of the node or its pods", is_knft_only=True, applies_with_file=True),
    Option("", ("--service-cidr",), LIST, SUPPORTED, "ranges of cluster IPs, in addition to ServiceCIDR objects; "
           "packets to unallocated addresses are dropped", is_knft_only=True, applies_with_file=True, metavar="CIDR"),
    Option("", ("--min-sync-period",), DURATION, SUPPORTED, "minimum interval between two syncs, whatever the mode",
           is_knft_only=True, applies_with_file=True, metavar="DURATION", default_if_not_zero=MIN_SYNC_PERIOD),
    Option("", ("--sync-period",), DURATION, SUPPORTED, "interval before a failed sync, or a quarantined "
           "Service port, is first retried, whatever the mode; health checks fail if a change waits for twice "
           "this time",
           is_knft_only=True, applies_with_file=True, metavar="DURATION", default_if_not_zero="30s"),
    Option("", ("--max-sync-period",), DURATION, SUPPORTED, "maximum interval between two syncs; at least the minimum",
           is_knft_only=True, applies_with_file=True, metavar="DURATION", default_if_not_zero="1h0m0s"),
    Option("", ("--sync-burst",), INTEGER, SUPPORTED, "number of syncs that may follow each other without the minimum "
           "interval; kube-proxy up to 1.34 allowed 2", is_knft_only=True, applies_with_file=True, value_range=(1, 100),
           metavar="NUMBER", default_if_not_zero=1),
    Option("", ("--service-counters",), BOOL, SUPPORTED, "count new, rejected and dropped connections for each "
           "Service port, and serve the numbers as metrics", is_knft_only=True, applies_with_file=True),
    Option("", ("--drop-invalid-packets",), BOOL, SUPPORTED, "drop forwarded packets that conntrack finds INVALID, as "
           "kube-proxy's mode iptables does, unless nf_conntrack_tcp_be_liberal is set", is_knft_only=True,
           applies_with_file=True),
    Option("", ("--insecure-send-credentials-without-tls",), BOOL, SUPPORTED, "send tokens and passwords to an http:// "
           "server too, directly or through a proxy; without this flag knft refuses to start", is_knft_only=True,
           applies_with_file=True),
    Option("", ("--masquerade-bit",), INTEGER, SUPPORTED, f"{_MASQUERADE_BIT}, whatever the mode", is_knft_only=True,
           applies_with_file=True, value_range=MASQUERADE_BIT_RANGE, metavar="BIT", default_if_not_zero=14),
)  # fmt: skip

PROCESS_OPTIONS = (
    Option("", ("--config",), STRING, SUPPORTED, "file with a KubeProxyConfiguration; knft exits when its content "
           "changes", applies_with_file=True, metavar="FILE"),
    Option("", ("--write-config-to",), STRING, SUPPORTED, "write the effective configuration as v1alpha1 YAML, and "
           "exit", applies_with_file=True, metavar="FILE"),
    Option("", ("--cleanup",), BOOL, SUPPORTED, "remove knft's tables and the leftovers of all modes of kube-proxy, "
           "and exit; `knft cleanup` removes only knft's tables", applies_with_file=True),
    Option("", ("--init-only",), BOOL, SUPPORTED, "set the conntrack sysctls, which need more privileges than "
           "CAP_NET_ADMIN, and exit; no API server and no manifests are needed", applies_with_file=True),
    Option("", ("--version",), Kind.VERSION, SUPPORTED, "print knft's version and exit", applies_with_file=True),
    Option("", ("--master",), STRING, SUPPORTED, "address of the API server; overrides the kubeconfig",
           applies_with_file=True, metavar="URL"),
)  # fmt: skip

CLIENT_OPTIONS = (
    Option("clientConnection.kubeconfig", ("--kubeconfig",), STRING, SUPPORTED, "kubeconfig file; without it and "
           "--master knft uses the pod's service account", metavar="FILE"),
    Option("clientConnection.acceptContentTypes", (), STRING, IGNORED, _JSON),
    Option("clientConnection.contentType", ("--kube-api-content-type",), STRING, IGNORED, _JSON,
           values_without_warning=("application/json",), default_if_not_zero="application/vnd.kubernetes.protobuf"),
    Option("clientConnection.qps", ("--kube-api-qps",), FLOAT, SUPPORTED, "requests per second to the API server; a "
           "negative number means no limit", default_if_not_zero=5.0),
    Option("clientConnection.burst", ("--kube-api-burst",), INTEGER, SUPPORTED, "maximum burst of requests to the "
           "API server", default_if_not_zero=10),
    Option("configSyncPeriod", ("--config-sync-period",), DURATION, IGNORED, "knft watches objects and has no periodic "
           "resync", default_if_not_zero="15m0s"),
)  # fmt: skip

NODE_OPTIONS = (
    Option("hostnameOverride", ("--hostname-override",), STRING, SUPPORTED, "name of this node; default is the "
           "hostname", applies_with_file=True, metavar="NAME"),
    Option("bindAddress", ("--bind-address",), STRING, SUPPORTED, "primary address of the node, unless it is 0.0.0.0 "
           "or ::; knft does not listen there", metavar="IP",
           default_if_not_zero="0.0.0.0"),  # noqa: S104 - kube-proxy's default
    Option("oomScoreAdj", ("--oom-score-adj",), INTEGER, SUPPORTED, "OOM score adjustment of the process, -1000 to "
           "1000", is_zero_valid=True, default_if_not_zero=-999),
    Option("conntrack.maxPerCore", ("--conntrack-max-per-core",), INTEGER, SUPPORTED, "maximum number of conntrack "
           "entries per CPU core; 0 leaves the limit unchanged", is_zero_valid=True, default_if_not_zero=32768),
    Option("conntrack.min", ("--conntrack-min",), INTEGER, SUPPORTED, "lower bound of the maximum number of "
           "conntrack entries (nf_conntrack_max)", is_zero_valid=True, default_if_not_zero=131072),
    Option("conntrack.tcpEstablishedTimeout", ("--conntrack-tcp-timeout-established",), DURATION, SUPPORTED,
           "conntrack timeout of idle TCP connections; 0 leaves it unchanged", is_zero_valid=True,
           default_if_not_zero="24h0m0s"),
    Option("conntrack.tcpCloseWaitTimeout", ("--conntrack-tcp-timeout-close-wait",), DURATION, SUPPORTED,
           "conntrack timeout of TCP connections in state CLOSE_WAIT; 0 leaves it unchanged", is_zero_valid=True,
           default_if_not_zero="1h0m0s"),
    Option("conntrack.tcpBeLiberal", ("--conntrack-tcp-be-liberal",), BOOL, SUPPORTED, "conntrack accepts packets "
           "outside the TCP window as valid"),
    Option("conntrack.udpTimeout", ("--conntrack-udp-timeout",), DURATION, SUPPORTED, "conntrack timeout of UDP flows "
           "without a reply; 0 leaves it unchanged"),
    Option("conntrack.udpStreamTimeout", ("--conntrack-udp-timeout-stream",), DURATION, SUPPORTED, "conntrack timeout "
           "of UDP flows with replies; 0 leaves it unchanged"),
)  # fmt: skip

POD_OPTIONS = (
    Option("detectLocalMode", ("--detect-local-mode",), STRING, SUPPORTED, "how to detect traffic from local pods: "
           f"{', '.join(DETECT_LOCAL_MODES[:-1])} or {DETECT_LOCAL_MODES[-1]}", metavar="MODE",
           default_if_not_zero="ClusterCIDR", choices=DETECT_LOCAL_MODES),
    Option("detectLocal.bridgeInterface", ("--pod-bridge-interface",), STRING, SUPPORTED, "bridge of the local "
           "pods, for mode BridgeInterface", metavar="NAME"),
    Option("detectLocal.interfaceNamePrefix", ("--pod-interface-name-prefix",), STRING, SUPPORTED, "prefix of "
           "the local pods' interface names, for mode InterfaceNamePrefix", metavar="PREFIX"),
    Option("clusterCIDR", ("--cluster-cidr",), STRING, SUPPORTED, "CIDRs of the pods; with --detect-local-mode "
           "ClusterCIDR, traffic to cluster IPs from other sources is masqueraded", metavar="CIDR"),
    Option("nodePortAddresses", ("--nodeport-addresses",), LIST, SUPPORTED, "local addresses that accept NodePorts: "
           "primary (default, as in mode nftables), all, localhost (needs a feature gate), or CIDRs",
           metavar="primary|all|localhost|CIDR"),
)  # fmt: skip

RULE_OPTIONS = (
    Option("mode", ("--proxy-mode",), STRING, SUPPORTED, "mode whose sync periods and masquerade "
           "settings apply: nftables, iptables (default) or ipvs; knft always uses nftables and warns if another mode "
           "is set; kernelspace is rejected", metavar="MODE", choices=("nftables", "iptables", "ipvs")),
    Option("iptables.masqueradeBit", ("--iptables-masquerade-bit",), INTEGER, SUPPORTED, f"{_MASQUERADE_BIT}; "
           "no effect in mode nftables, which uses nftables.masqueradeBit",
           is_zero_valid=True, modes=IPTABLES_OR_IPVS, value_range=MASQUERADE_BIT_RANGE, default_if_not_zero=14),
    Option("iptables.masqueradeAll", ("--masquerade-all",), BOOL, SUPPORTED, "masquerade all traffic to cluster IPs",
           modes=IPTABLES_OR_IPVS, field_note=_OWN_SECTION),
    Option("iptables.localhostNodePorts", ("--iptables-localhost-nodeports",), BOOL, IGNORED, _NO_LOCALHOST,
           is_zero_valid=True, values_without_warning=(False,), default_if_not_zero=True),
    Option("iptables.syncPeriod", ("--iptables-sync-period",), DURATION, SUPPORTED, "interval before a failed sync is "
           "retried; no effect in mode ipvs", modes=IPTABLES, default_if_not_zero="30s", field_note=_OWN_SECTION),
    Option("iptables.minSyncPeriod", ("--iptables-min-sync-period",), DURATION, SUPPORTED, "minimum interval between "
           "two syncs; no effect in mode ipvs", modes=IPTABLES, default_if_not_zero=MIN_SYNC_PERIOD,
           values_without_warning=(_KUBE_PROXYS_MINIMUM,), field_note=_OWN_SECTION),
    Option("ipvs.syncPeriod", ("--ipvs-sync-period",), DURATION, SUPPORTED, "interval before a failed sync is retried, "
           "in mode ipvs", modes=IPVS, default_if_not_zero="30s"),
    Option("ipvs.minSyncPeriod", ("--ipvs-min-sync-period",), DURATION, SUPPORTED, "minimum interval between two "
           "syncs, in mode ipvs", modes=IPVS),
    Option("ipvs.scheduler", ("--ipvs-scheduler",), STRING, IGNORED, "knft selects endpoints at random"),
    Option("ipvs.excludeCIDRs", ("--ipvs-exclude-cidrs",), LIST, IGNORED, f"{_NO_IPVS} and changes no virtual server"),
    Option("ipvs.strictARP", ("--ipvs-strict-arp",), BOOL, IGNORED, "knft adds no address to the node, so ARP needs "
           "no settings"),
    Option("ipvs.tcpTimeout", ("--ipvs-tcp-timeout",), DURATION, IGNORED, _CONNTRACK_TIMEOUTS),
    Option("ipvs.tcpFinTimeout", ("--ipvs-tcpfin-timeout",), DURATION, IGNORED, _CONNTRACK_TIMEOUTS),
    Option("ipvs.udpTimeout", ("--ipvs-udp-timeout",), DURATION, IGNORED, _CONNTRACK_TIMEOUTS),
    Option("nftables.masqueradeBit", (), INTEGER, SUPPORTED, f"{_MASQUERADE_BIT}, in mode nftables", is_zero_valid=True,
           modes=NFTABLES, default_if_not_zero=14),
    Option("nftables.masqueradeAll", (), BOOL, SUPPORTED, "masquerade all traffic to cluster IPs, in mode nftables",
           modes=NFTABLES),
    Option("nftables.syncPeriod", (), DURATION, SUPPORTED, "interval before a failed sync is retried, in mode nftables",
           modes=NFTABLES, default_if_not_zero="30s"),
    Option("nftables.minSyncPeriod", (), DURATION, SUPPORTED, "minimum interval between two syncs, in mode nftables",
           modes=NFTABLES, default_if_not_zero=MIN_SYNC_PERIOD, values_without_warning=(_KUBE_PROXYS_MINIMUM,)),
    Option("portRange", ("--proxy-port-range",), STRING, IGNORED, "knft opens no ports for Services"),
)  # fmt: skip

SERVER_OPTIONS = (
    Option("healthzBindAddress", ("--healthz-bind-address",), STRING, SUPPORTED, "address that serves /healthz and "
           f"/livez; {_NOT_SERVED}", metavar="IP:PORT",
           default_if_not_zero="0.0.0.0:10256"),
    Option("metricsBindAddress", ("--metrics-bind-address",), STRING, SUPPORTED, "address that serves /metrics, "
           f"/metrics/slis, /healthz, /proxyMode, /configz, /statusz and /flagz; {_NOT_SERVED}", metavar="IP:PORT",
           default_if_not_zero="127.0.0.1:10249"),
    Option("", ("--healthz-port",), INTEGER, SUPPORTED, "deprecated: port of --healthz-bind-address if its value has "
           "no port; 0 disables the server", value_range=(0, 65535), default_if_not_zero=10256),
    Option("", ("--metrics-port",), INTEGER, SUPPORTED, "deprecated: port of --metrics-bind-address if its value has "
           "no port; 0 disables the server", value_range=(0, 65535), default_if_not_zero=10249),
    Option("bindAddressHardFail", ("--bind-address-hard-fail",), BOOL, SUPPORTED, "exit if healthzBindAddress or "
           "metricsBindAddress cannot be bound, instead of retrying"),
    Option("enableProfiling", ("--profiling",), BOOL, SUPPORTED, "serve /debug/stacks, the stacks of all threads, at "
           "the metrics address; knft has no /debug/pprof"),
    Option("showHiddenMetricsForVersion", ("--show-hidden-metrics-for-version",), STRING, IGNORED, "knft hides no "
           "metrics"),
    Option("featureGates", ("--feature-gates",), Kind.FEATURE_GATES, SUPPORTED, GATES_DESCRIPTION,
           metavar="NAME=BOOL"),
)  # fmt: skip

LOGGING_OPTIONS = (
    Option("logging.format", ("--logging-format",), STRING, SUPPORTED, "log format, text or json",
           applies_with_file=True, metavar="FORMAT", default_if_not_zero="text", choices=("text", "json")),
    Option("logging.verbosity", ("-v", "--v"), INTEGER, SUPPORTED, "log level; 0: start, stop, full syncs, "
           "warnings and errors; 2: every sync with its duration and Service ports; 4: requests to the API server, "
           "and programming latencies",
           applies_with_file=True, metavar="LEVEL", value_range=(0, INT32_RANGE[1])),
    Option("logging.vmodule", ("--vmodule",), VMODULE, IGNORED, "knft has no Go files; -v applies to all modules",
           applies_with_file=True),
    Option("logging.flushFrequency", ("--log-flush-frequency",), DURATION, IGNORED, _UNBUFFERED,
           applies_with_file=True, default_if_not_zero="5s"),
    *(
        option
        for form in ("json", "text")
        for option in (
            Option(f"logging.options.{form}.infoBufferSize", (f"--log-{form}-info-buffer-size",), STRING, IGNORED,
                   _UNBUFFERED, applies_with_file=True, default_if_not_zero="0"),
            Option(f"logging.options.{form}.splitStream", (f"--log-{form}-split-stream",), BOOL, IGNORED,
                   _UNBUFFERED, applies_with_file=True),
        )
    ),
    Option("", ("--add-dir-header", "--alsologtostderr", "--logtostderr", "--one-output", "--skip-headers",
                "--skip-log-headers"), BOOL, IGNORED, _STDERR, applies_with_file=True),
    Option("", ("--log-backtrace-at", "--log-dir", "--log-file", "--log-file-max-size", "--stderrthreshold"), STRING,
           IGNORED, _STDERR, applies_with_file=True),
    Option("", ("--boot-id-file", "--machine-id-file"), STRING, IGNORED, "kube-proxy does not read these files either",
           applies_with_file=True),
)  # fmt: skip

WINDOWS_OPTIONS = (
    Option("winkernel.networkName", (), STRING, IGNORED, _WINDOWS),
    Option("winkernel.sourceVip", (), STRING, IGNORED, _WINDOWS),
    Option("winkernel.enableDSR", (), BOOL, IGNORED, _WINDOWS, values_without_warning=(True,)),
    Option("winkernel.rootHnsEndpointName", (), STRING, IGNORED, _WINDOWS),
    Option("winkernel.forwardHealthCheckVip", (), BOOL, IGNORED, _WINDOWS),
    Option("windowsRunAsService", ("--windows-service",), BOOL, REJECTED, _WINDOWS),
    Option("", ("--network-name", "--source-vip", "--root-hnsendpoint-name"), STRING, REJECTED, _WINDOWS),
    Option("", ("--enable-dsr", "--forward-healthcheck-vip"), BOOL, REJECTED, _WINDOWS),
)

OPTIONS: tuple[Option, ...] = (
    *KNFT_OPTIONS,
    *PROCESS_OPTIONS,
    *CLIENT_OPTIONS,
    *NODE_OPTIONS,
    *POD_OPTIONS,
    *RULE_OPTIONS,
    *SERVER_OPTIONS,
    *LOGGING_OPTIONS,
    *WINDOWS_OPTIONS,
)
FIELDS: dict[str, Option] = {option.field: option for option in OPTIONS if option.field}
FLAGS: dict[str, Option] = {flag: option for option in OPTIONS for flag in option.flags}


def options_of_kind(kind: Kind) -> Iterator[Option]:
    """Yield the options with a field of one kind."""
    return (option for option in FIELDS.values() if option.kind is kind)


def help_text(flag: str) -> str:
    """Return the description of a flag as a sentence, for --help."""
    return sentence(FLAGS[flag].description)


def sentence(text: str) -> str:
    """Return a description as a sentence; the names knft and kube-proxy stay in lower case."""
    if text.startswith(("knft", "kube-proxy")):
        return f"{text}."
    return f"{text[0].upper()}{text[1:]}."
