"""Every flag and every field that kube-proxy has, and knft's own flags: what each means here.

The command line, the reading of files, and the table in the README all come from these rows (behaviour.md I.1, I.3).
"""

from collections.abc import Iterator

from knft.configuration.gates import GATES_DESCRIPTION
from knft.configuration.options import INT32_RANGE, Kind, Option, Support

BOOL, WHOLE, NUMBER, TEXT = Kind.BOOL, Kind.INTEGER, Kind.FLOAT, Kind.STRING
DURATION, LIST, VMODULE = Kind.DURATION, Kind.LIST, Kind.VMODULE
HONOURED, IDLE, REFUSED = Support.SUPPORTED, Support.IGNORED, Support.REJECTED

IPTABLES, IPVS, NFTABLES = ("", "iptables"), ("ipvs",), ("nftables",)
IPTABLES_OR_IPVS = (*IPTABLES, *IPVS)

_NO_IPVS = "knft has no IPVS"
_NO_LOOPBACK = "NodePorts on loopback addresses are never served"
_AT_ONCE = "every line of the log is written at once, to one stream"
_WINDOWS = "it belongs to kube-proxy on Windows, and knft runs on Linux"
_NO_FILES = "there are no Go files to choose among; -v holds for all"
_AS_A_FIELD = "as a field not in mode nftables either, which has its own"
_STDERR = "knft logs to standard error, with a time and a level"

KNFT_OPTIONS = (
    Option("", ("--manifests",), TEXT, HONOURED, "directory of YAML and JSON manifests to follow, instead of an API "
        "server", is_knft_only=True, applies_with_file=True, metavar="DIR"),
    Option("", ("--once",), BOOL, HONOURED, "sync once and exit", is_knft_only=True, applies_with_file=True),
    Option("", ("--node",), TEXT, HONOURED, "name of this node, as in nodeName; the same as --hostname-override",
        is_knft_only=True, applies_with_file=True, metavar="NAME"),
    Option("", ("--node-ip",), LIST, HONOURED, "the node's address; one of each family", is_knft_only=True, applies_with_file=True,
        metavar="IP"),
    Option("", ("--service-cidr",), LIST, HONOURED, "where cluster IPs come from, beside ServiceCIDR objects; "
        "unallocated ones are dropped", is_knft_only=True, applies_with_file=True, metavar="CIDR"),
    Option("", ("--min-sync-period",), DURATION, HONOURED, "shortest pause between two syncs, whatever the mode",
        is_knft_only=True, applies_with_file=True, metavar="DURATION", non_zero_default="1s"),
    Option("", ("--sync-period",), DURATION, HONOURED, "pause after a failed sync, whatever the mode",
        is_knft_only=True, applies_with_file=True, metavar="DURATION", non_zero_default="30s"),
    Option("", ("--masquerade-bit",), WHOLE, HONOURED, "bit of the packet mark that asks for masquerading, whatever "
        "the mode", is_knft_only=True, applies_with_file=True, value_range=(0, 31), metavar="BIT", non_zero_default=14),
)  # fmt: skip

PROCESS_OPTIONS = (
    Option("", ("--config",), TEXT, HONOURED, "file with a KubeProxyConfiguration; when its content changes, knft "
        "exits", applies_with_file=True, metavar="FILE"),
    Option("", ("--write-config-to",), TEXT, HONOURED, "write the configuration that results, as v1alpha1 YAML, and "
        "exit", applies_with_file=True, metavar="FILE"),
    Option("", ("--cleanup",), BOOL, HONOURED, "remove knft's tables, and what kube-proxy left in any mode, and "
        "exit", applies_with_file=True),
    Option("", ("--init-only",), BOOL, HONOURED, "do what needs privilege beyond CAP_NET_ADMIN (conntrack's "
        "sysctls), and exit", applies_with_file=True),
    Option("", ("--version",), Kind.VERSION, HONOURED, "print knft's version and exit", applies_with_file=True),
    Option("", ("--master",), TEXT, HONOURED, "address of the API server; wins over the kubeconfig's",
        applies_with_file=True, metavar="URL"),
)  # fmt: skip

CLIENT_OPTIONS = (
    Option("clientConnection.kubeconfig", ("--kubeconfig",), TEXT, HONOURED, "how to reach the API server; without "
        "it and --master, as a pod does", metavar="FILE"),
    Option("clientConnection.acceptContentTypes", (), TEXT, IDLE, "knft always asks for JSON"),
    Option("clientConnection.contentType", ("--kube-api-content-type",), TEXT, IDLE,
        "knft always asks for JSON", silent_values=("application/json",), non_zero_default="application/vnd.kubernetes.protobuf"),
    Option("clientConnection.qps", ("--kube-api-qps",), NUMBER, HONOURED, "requests a second; less than 0 means no "
        "limit", non_zero_default=5.0),
    Option("clientConnection.burst", ("--kube-api-burst",), WHOLE, HONOURED, "requests at once, above the rate",
        non_zero_default=10),
    Option("configSyncPeriod", ("--config-sync-period",), DURATION, IDLE, "objects are followed as they change, and "
        "none is gone over again without a change", non_zero_default="15m0s"),
)  # fmt: skip

NODE_OPTIONS = (
    Option("hostnameOverride", ("--hostname-override",), TEXT, HONOURED, "name of this node; otherwise the host's "
        "name", applies_with_file=True, metavar="NAME"),
    Option("bindAddress", ("--bind-address",), TEXT, HONOURED, "the node's primary address, unless it is a "
        "wildcard; nothing is bound to it", metavar="IP", non_zero_default="0.0.0.0"),  # noqa: S104 - kube-proxy's default
    Option("oomScoreAdj", ("--oom-score-adj",), WHOLE, HONOURED, "how loath the kernel is to kill knft, -1000 to "
        "1000", is_zero_valid=True, non_zero_default=-999),
    Option("conntrack.maxPerCore", ("--conntrack-max-per-core",), WHOLE, HONOURED, "connections that conntrack "
        "holds, for each CPU; 0 leaves the limit", is_zero_valid=True, non_zero_default=32768),
    Option("conntrack.min", ("--conntrack-min",), WHOLE, HONOURED, "the least connections that conntrack holds",
        is_zero_valid=True, non_zero_default=131072),
    Option("conntrack.tcpEstablishedTimeout", ("--conntrack-tcp-timeout-established",), DURATION, HONOURED,
        "idle time of TCP connections in conntrack; 0 leaves it", is_zero_valid=True, non_zero_default="24h0m0s"),
    Option("conntrack.tcpCloseWaitTimeout", ("--conntrack-tcp-timeout-close-wait",), DURATION, HONOURED,
        "the same in state CLOSE_WAIT", is_zero_valid=True, non_zero_default="1h0m0s"),
    Option("conntrack.tcpBeLiberal", ("--conntrack-tcp-be-liberal",), BOOL, HONOURED, "conntrack takes packets "
        "outside the TCP window as valid"),
    Option("conntrack.udpTimeout", ("--conntrack-udp-timeout",), DURATION, HONOURED, "idle time of UDP flows that "
        "nobody answers; 0 leaves it"),
    Option("conntrack.udpStreamTimeout", ("--conntrack-udp-timeout-stream",), DURATION, HONOURED, "the same of "
        "those that are answered"),
)  # fmt: skip

POD_OPTIONS = (
    Option("detectLocalMode", ("--detect-local-mode",), TEXT, HONOURED, "how traffic of this cluster's "
        "pods is told from other traffic: ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix",
        metavar="MODE", non_zero_default="ClusterCIDR"),
    Option("detectLocal.bridgeInterface", ("--pod-bridge-interface",), TEXT, HONOURED, "the bridge of mode "
        "BridgeInterface", metavar="NAME"),
    Option("detectLocal.interfaceNamePrefix", ("--pod-interface-name-prefix",), TEXT, HONOURED, "what pod interfaces "
        "begin with, in mode InterfaceNamePrefix", metavar="PREFIX"),
    Option("clusterCIDR", ("--cluster-cidr",), TEXT, HONOURED, "where pods have their addresses; traffic from "
        "elsewhere to cluster IPs is masqueraded", metavar="CIDR"),
    Option("nodePortAddresses", ("--nodeport-addresses",), LIST, HONOURED, "which local addresses accept NodePorts: "
        "primary (default, as in mode nftables), all, or CIDRs; localhost is refused", metavar="WORD|CIDR"),
)  # fmt: skip

RULE_OPTIONS = (
    Option("mode", ("--proxy-mode",), TEXT, HONOURED, "always nftables; iptables and ipvs are taken with a warning, and "
        "say which settings count (without a mode those of iptables); kernelspace is refused", metavar="MODE"),
    Option("iptables.masqueradeBit", ("--iptables-masquerade-bit",), WHOLE, HONOURED, "bit of the packet mark that "
        "asks for masquerading; not in mode nftables", is_zero_valid=True, modes=IPTABLES_OR_IPVS, value_range=(0, 31),
        non_zero_default=14),
    Option("iptables.masqueradeAll", ("--masquerade-all",), BOOL, HONOURED, "masquerade all traffic to cluster IPs",
        modes=IPTABLES_OR_IPVS, field_note="as a field not in mode nftables, which has its own"),
    Option("iptables.localhostNodePorts", ("--iptables-localhost-nodeports",), BOOL, IDLE, _NO_LOOPBACK,
        is_zero_valid=True, silent_values=(False,), non_zero_default=True),
    Option("iptables.syncPeriod", ("--iptables-sync-period",), DURATION, HONOURED, "pause after a failed sync; not in "
        "mode ipvs", modes=IPTABLES, non_zero_default="30s", field_note=_AS_A_FIELD),
    Option("iptables.minSyncPeriod", ("--iptables-min-sync-period",), DURATION, HONOURED, "shortest pause between two "
        "syncs; not in mode ipvs", modes=IPTABLES, non_zero_default="1s", field_note=_AS_A_FIELD),
    Option("ipvs.syncPeriod", ("--ipvs-sync-period",), DURATION, HONOURED, "pause after a failed sync, in mode ipvs",
        modes=IPVS, non_zero_default="30s"),
    Option("ipvs.minSyncPeriod", ("--ipvs-min-sync-period",), DURATION, HONOURED, "shortest pause between two syncs, in "
        "mode ipvs", modes=IPVS),
    Option("ipvs.scheduler", ("--ipvs-scheduler",), TEXT, IDLE, "endpoints are chosen at random"),
    Option("ipvs.excludeCIDRs", ("--ipvs-exclude-cidrs",), LIST, IDLE, f"{_NO_IPVS}: no virtual server is touched"),
    Option("ipvs.strictARP", ("--ipvs-strict-arp",), BOOL, IDLE, "no address is bound to the node, so ARP needs "
        "no settings"),
    Option("ipvs.tcpTimeout", ("--ipvs-tcp-timeout",), DURATION, IDLE, f"{_NO_IPVS}; conntrack's timeouts count"),
    Option("ipvs.tcpFinTimeout", ("--ipvs-tcpfin-timeout",), DURATION, IDLE,
        f"{_NO_IPVS}; conntrack's timeouts count"),
    Option("ipvs.udpTimeout", ("--ipvs-udp-timeout",), DURATION, IDLE, f"{_NO_IPVS}; conntrack's timeouts count"),
    Option("nftables.masqueradeBit", (), WHOLE, HONOURED, "in mode nftables", is_zero_valid=True, modes=NFTABLES, non_zero_default=14),
    Option("nftables.masqueradeAll", (), BOOL, HONOURED, "in mode nftables", modes=NFTABLES),
    Option("nftables.syncPeriod", (), DURATION, HONOURED, "in mode nftables", modes=NFTABLES, non_zero_default="30s"),
    Option("nftables.minSyncPeriod", (), DURATION, HONOURED, "in mode nftables", modes=NFTABLES, non_zero_default="1s"),
    Option("portRange", ("--proxy-port-range",), TEXT, IDLE, "no port is opened on behalf of Services"),
)  # fmt: skip

SERVER_OPTIONS = (
    Option("healthzBindAddress", ("--healthz-bind-address",), TEXT, HONOURED, "where /healthz and "
        "/livez are served; an empty flag means nowhere", metavar="IP:PORT", non_zero_default="0.0.0.0:10256"),
    Option("metricsBindAddress", ("--metrics-bind-address",), TEXT, HONOURED, "where /metrics and its "
        "like are served; an empty flag means nowhere", metavar="IP:PORT", non_zero_default="127.0.0.1:10249"),
    Option("", ("--healthz-port",), WHOLE, HONOURED, "deprecated; 0 means nowhere, another number is the port "
        "where --healthz-bind-address has none", value_range=(0, 65535), non_zero_default=10256),
    Option("", ("--metrics-port",), WHOLE, HONOURED, "the same for --metrics-bind-address", value_range=(0, 65535),
        non_zero_default=10249),
    Option("bindAddressHardFail", ("--bind-address-hard-fail",), BOOL, HONOURED, "exit where one of these "
        "addresses cannot be bound, rather than try again"),
    Option("enableProfiling", ("--profiling",), BOOL, HONOURED, "serve /debug/stacks beside the "
        "metrics, what every thread is doing; there is no /debug/pprof, which is Go's"),
    Option("showHiddenMetricsForVersion", ("--show-hidden-metrics-for-version",), TEXT, IDLE, "no metric is hidden"),
    Option("featureGates", ("--feature-gates",), Kind.FEATURE_GATES, HONOURED, GATES_DESCRIPTION, metavar="NAME=BOOL"),
)  # fmt: skip

LOGGING_OPTIONS = (
    Option("logging.format", ("--logging-format",), TEXT, HONOURED, "text or json", applies_with_file=True,
        metavar="FORMAT", non_zero_default="text"),
    Option("logging.verbosity", ("-v", "--v"), WHOLE, HONOURED, "0: first syncs and problems; 2: every sync, "
        "and how long it took; 4: what others are asked, and how old changes are when they are in force",
        applies_with_file=True, metavar="LEVEL", value_range=(0, INT32_RANGE[1])),
    Option("logging.vmodule", ("--vmodule",), VMODULE, IDLE, _NO_FILES, applies_with_file=True),
    Option("logging.flushFrequency", ("--log-flush-frequency",), DURATION, IDLE, _AT_ONCE, applies_with_file=True, non_zero_default="5s"),
    *(
        row
        for form in ("json", "text")
        for row in (
            Option(f"logging.options.{form}.infoBufferSize", (f"--log-{form}-info-buffer-size",), TEXT, IDLE,
                _AT_ONCE, applies_with_file=True, non_zero_default="0"),
            Option(f"logging.options.{form}.splitStream", (f"--log-{form}-split-stream",), BOOL, IDLE,
                _AT_ONCE, applies_with_file=True),
        )
    ),
    Option("", ("--add-dir-header", "--alsologtostderr", "--logtostderr", "--one-output", "--skip-headers",
             "--skip-log-headers"), BOOL, IDLE, _STDERR, applies_with_file=True),
    Option("", ("--log-backtrace-at", "--log-dir", "--log-file", "--log-file-max-size", "--stderrthreshold"), TEXT,
        IDLE, _STDERR, applies_with_file=True),
    Option("", ("--boot-id-file", "--machine-id-file"), TEXT, IDLE, "kube-proxy does not read them either",
        applies_with_file=True),
)  # fmt: skip

WINDOWS_OPTIONS = (
    Option("winkernel.networkName", (), TEXT, IDLE, _WINDOWS),
    Option("winkernel.sourceVip", (), TEXT, IDLE, _WINDOWS),
    Option("winkernel.enableDSR", (), BOOL, IDLE, _WINDOWS, silent_values=(True,)),
    Option("winkernel.rootHnsEndpointName", (), TEXT, IDLE, _WINDOWS),
    Option("winkernel.forwardHealthCheckVip", (), BOOL, IDLE, _WINDOWS),
    Option("windowsRunAsService", ("--windows-service",), BOOL, REFUSED, _WINDOWS),
    Option("", ("--network-name", "--source-vip", "--root-hnsendpoint-name"), TEXT, REFUSED, _WINDOWS),
    Option("", ("--enable-dsr", "--forward-healthcheck-vip"), BOOL, REFUSED, _WINDOWS),
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
FIELDS: dict[str, Option] = {row.field: row for row in OPTIONS if row.field}
FLAGS: dict[str, Option] = {flag: row for row in OPTIONS for flag in row.flags}


def options_of_kind(kind: Kind) -> Iterator[Option]:
    """Yield the rows of fields of one kind."""
    return (row for row in FIELDS.values() if row.kind is kind)


def help_text(flag: str) -> str:
    """Return what --help says of a flag: the row's note, as a sentence."""
    note = FLAGS[flag].description
    return f"{note[0].upper()}{note[1:]}."
