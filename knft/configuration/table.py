"""Every flag and every field that kube-proxy has, and knft's own flags: what each means here.

The command line, the reading of files, and the table in the README all come from these rows (behaviour.md I.1, I.3).
"""

from collections.abc import Iterator

from knft.configuration.gates import GATES_NOTE
from knft.configuration.rows import INT32, Kind, Row, Verdict

BOOL, WHOLE, NUMBER, TEXT = Kind.BOOL, Kind.WHOLE, Kind.NUMBER, Kind.TEXT
DURATION, LIST, VMODULE = Kind.DURATION, Kind.LIST, Kind.VMODULE
HONOURED, IDLE, REFUSED = Verdict.HONOURED, Verdict.IDLE, Verdict.REFUSED

IPTABLES, IPVS, NFTABLES = ("", "iptables"), ("ipvs",), ("nftables",)
IPTABLES_OR_IPVS = (*IPTABLES, *IPVS)

_NO_IPVS = "knft has no IPVS"
_NO_LOOPBACK = "NodePorts on loopback addresses are never served"
_AT_ONCE = "every line of the log is written at once, to one stream"
_WINDOWS = "it belongs to kube-proxy on Windows, and knft runs on Linux"
_NO_FILES = "there are no Go files to choose among; -v holds for all"
_AS_A_FIELD = "as a field not in mode nftables either, which has its own"
_STDERR = "knft logs to standard error, with a time and a level"

OWN = (
    Row("", ("--manifests",), TEXT, HONOURED, "directory of YAML and JSON manifests to follow, instead of an API "
        "server", own=True, beside_file=True, metavar="DIR"),
    Row("", ("--once",), BOOL, HONOURED, "sync once and exit", own=True, beside_file=True),
    Row("", ("--node",), TEXT, HONOURED, "name of this node, as in nodeName; the same as --hostname-override",
        own=True, beside_file=True, metavar="NAME"),
    Row("", ("--node-ip",), LIST, HONOURED, "the node's address; one of each family", own=True, beside_file=True,
        metavar="IP"),
    Row("", ("--service-cidr",), LIST, HONOURED, "where cluster IPs come from, beside ServiceCIDR objects; "
        "unallocated ones are dropped", own=True, beside_file=True, metavar="CIDR"),
    Row("", ("--min-sync-period",), DURATION, HONOURED, "shortest pause between two syncs, whatever the mode",
        own=True, beside_file=True, metavar="DURATION", preset="1s"),
    Row("", ("--sync-period",), DURATION, HONOURED, "pause after a failed sync, whatever the mode",
        own=True, beside_file=True, metavar="DURATION", preset="30s"),
    Row("", ("--masquerade-bit",), WHOLE, HONOURED, "bit of the packet mark that asks for masquerading, whatever "
        "the mode", own=True, beside_file=True, bounds=(0, 31), metavar="BIT", preset=14),
)  # fmt: skip

CONTROL = (
    Row("", ("--config",), TEXT, HONOURED, "file with a KubeProxyConfiguration; when its content changes, knft "
        "exits", beside_file=True, metavar="FILE"),
    Row("", ("--write-config-to",), TEXT, HONOURED, "write the configuration that results, as v1alpha1 YAML, and "
        "exit", beside_file=True, metavar="FILE"),
    Row("", ("--cleanup",), BOOL, HONOURED, "remove knft's tables, and what kube-proxy left in any mode, and "
        "exit", beside_file=True),
    Row("", ("--init-only",), BOOL, HONOURED, "do what needs privilege beyond CAP_NET_ADMIN (conntrack's "
        "sysctls), and exit", beside_file=True),
    Row("", ("--version",), Kind.VERSION, HONOURED, "print knft's version and exit", beside_file=True),
    Row("", ("--master",), TEXT, HONOURED, "address of the API server; wins over the kubeconfig's",
        beside_file=True, metavar="URL"),
)  # fmt: skip

CLIENT = (
    Row("clientConnection.kubeconfig", ("--kubeconfig",), TEXT, HONOURED, "how to reach the API server; without "
        "it and --master, as a pod does", metavar="FILE"),
    Row("clientConnection.acceptContentTypes", (), TEXT, IDLE, "knft always asks for JSON"),
    Row("clientConnection.contentType", ("--kube-api-content-type",), TEXT, IDLE,
        "knft always asks for JSON", quiet=("application/json",), preset="application/vnd.kubernetes.protobuf"),
    Row("clientConnection.qps", ("--kube-api-qps",), NUMBER, HONOURED, "requests a second; less than 0 means no "
        "limit", preset=5.0),
    Row("clientConnection.burst", ("--kube-api-burst",), WHOLE, HONOURED, "requests at once, above the rate",
        preset=10),
    Row("configSyncPeriod", ("--config-sync-period",), DURATION, IDLE, "objects are followed as they change, and "
        "none is gone over again without a change", preset="15m0s"),
)  # fmt: skip

NODE = (
    Row("hostnameOverride", ("--hostname-override",), TEXT, HONOURED, "name of this node; otherwise the host's "
        "name", beside_file=True, metavar="NAME"),
    Row("bindAddress", ("--bind-address",), TEXT, HONOURED, "the node's primary address, unless it is a "
        "wildcard; nothing is bound to it", metavar="IP", preset="0.0.0.0"),  # noqa: S104 - kube-proxy's default
    Row("oomScoreAdj", ("--oom-score-adj",), WHOLE, HONOURED, "how loath the kernel is to kill knft, -1000 to "
        "1000", keeps_zero=True, preset=-999),
    Row("conntrack.maxPerCore", ("--conntrack-max-per-core",), WHOLE, HONOURED, "connections that conntrack "
        "holds, for each CPU; 0 leaves the limit", keeps_zero=True, preset=32768),
    Row("conntrack.min", ("--conntrack-min",), WHOLE, HONOURED, "the least connections that conntrack holds",
        keeps_zero=True, preset=131072),
    Row("conntrack.tcpEstablishedTimeout", ("--conntrack-tcp-timeout-established",), DURATION, HONOURED,
        "idle time of TCP connections in conntrack; 0 leaves it", keeps_zero=True, preset="24h0m0s"),
    Row("conntrack.tcpCloseWaitTimeout", ("--conntrack-tcp-timeout-close-wait",), DURATION, HONOURED,
        "the same in state CLOSE_WAIT", keeps_zero=True, preset="1h0m0s"),
    Row("conntrack.tcpBeLiberal", ("--conntrack-tcp-be-liberal",), BOOL, HONOURED, "conntrack takes packets "
        "outside the TCP window as valid"),
    Row("conntrack.udpTimeout", ("--conntrack-udp-timeout",), DURATION, HONOURED, "idle time of UDP flows that "
        "nobody answers; 0 leaves it"),
    Row("conntrack.udpStreamTimeout", ("--conntrack-udp-timeout-stream",), DURATION, HONOURED, "the same of "
        "those that are answered"),
)  # fmt: skip

PODS = (
    Row("detectLocalMode", ("--detect-local-mode",), TEXT, HONOURED, "how traffic of this cluster's "
        "pods is told from other traffic: ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix",
        metavar="MODE", preset="ClusterCIDR"),
    Row("detectLocal.bridgeInterface", ("--pod-bridge-interface",), TEXT, HONOURED, "the bridge of mode "
        "BridgeInterface", metavar="NAME"),
    Row("detectLocal.interfaceNamePrefix", ("--pod-interface-name-prefix",), TEXT, HONOURED, "what pod interfaces "
        "begin with, in mode InterfaceNamePrefix", metavar="PREFIX"),
    Row("clusterCIDR", ("--cluster-cidr",), TEXT, HONOURED, "where pods have their addresses; traffic from "
        "elsewhere to cluster IPs is masqueraded", metavar="CIDR"),
    Row("nodePortAddresses", ("--nodeport-addresses",), LIST, HONOURED, "which local addresses accept NodePorts: "
        "primary (default, as in mode nftables), all, or CIDRs; localhost is refused", metavar="WORD|CIDR"),
)  # fmt: skip

RULES = (
    Row("mode", ("--proxy-mode",), TEXT, HONOURED, "always nftables; iptables and ipvs are taken with a warning, and "
        "say which settings count (without a mode those of iptables); kernelspace is refused", metavar="MODE"),
    Row("iptables.masqueradeBit", ("--iptables-masquerade-bit",), WHOLE, HONOURED, "bit of the packet mark that "
        "asks for masquerading; not in mode nftables", keeps_zero=True, modes=IPTABLES_OR_IPVS, bounds=(0, 31),
        preset=14),
    Row("iptables.masqueradeAll", ("--masquerade-all",), BOOL, HONOURED, "masquerade all traffic to cluster IPs",
        modes=IPTABLES_OR_IPVS, more="as a field not in mode nftables, which has its own"),
    Row("iptables.localhostNodePorts", ("--iptables-localhost-nodeports",), BOOL, IDLE, _NO_LOOPBACK,
        keeps_zero=True, quiet=(False,), preset=True),
    Row("iptables.syncPeriod", ("--iptables-sync-period",), DURATION, HONOURED, "pause after a failed sync; not in "
        "mode ipvs", modes=IPTABLES, preset="30s", more=_AS_A_FIELD),
    Row("iptables.minSyncPeriod", ("--iptables-min-sync-period",), DURATION, HONOURED, "shortest pause between two "
        "syncs; not in mode ipvs", modes=IPTABLES, preset="1s", more=_AS_A_FIELD),
    Row("ipvs.syncPeriod", ("--ipvs-sync-period",), DURATION, HONOURED, "pause after a failed sync, in mode ipvs",
        modes=IPVS, preset="30s"),
    Row("ipvs.minSyncPeriod", ("--ipvs-min-sync-period",), DURATION, HONOURED, "shortest pause between two syncs, in "
        "mode ipvs", modes=IPVS),
    Row("ipvs.scheduler", ("--ipvs-scheduler",), TEXT, IDLE, "endpoints are chosen at random"),
    Row("ipvs.excludeCIDRs", ("--ipvs-exclude-cidrs",), LIST, IDLE, f"{_NO_IPVS}: no virtual server is touched"),
    Row("ipvs.strictARP", ("--ipvs-strict-arp",), BOOL, IDLE, "no address is bound to the node, so ARP needs "
        "no settings"),
    Row("ipvs.tcpTimeout", ("--ipvs-tcp-timeout",), DURATION, IDLE, f"{_NO_IPVS}; conntrack's timeouts count"),
    Row("ipvs.tcpFinTimeout", ("--ipvs-tcpfin-timeout",), DURATION, IDLE,
        f"{_NO_IPVS}; conntrack's timeouts count"),
    Row("ipvs.udpTimeout", ("--ipvs-udp-timeout",), DURATION, IDLE, f"{_NO_IPVS}; conntrack's timeouts count"),
    Row("nftables.masqueradeBit", (), WHOLE, HONOURED, "in mode nftables", keeps_zero=True, modes=NFTABLES, preset=14),
    Row("nftables.masqueradeAll", (), BOOL, HONOURED, "in mode nftables", modes=NFTABLES),
    Row("nftables.syncPeriod", (), DURATION, HONOURED, "in mode nftables", modes=NFTABLES, preset="30s"),
    Row("nftables.minSyncPeriod", (), DURATION, HONOURED, "in mode nftables", modes=NFTABLES, preset="1s"),
    Row("portRange", ("--proxy-port-range",), TEXT, IDLE, "no port is opened on behalf of Services"),
)  # fmt: skip

SERVING = (
    Row("healthzBindAddress", ("--healthz-bind-address",), TEXT, HONOURED, "where /healthz and "
        "/livez are served; an empty flag means nowhere", metavar="IP:PORT", preset="0.0.0.0:10256"),
    Row("metricsBindAddress", ("--metrics-bind-address",), TEXT, HONOURED, "where /metrics and its "
        "like are served; an empty flag means nowhere", metavar="IP:PORT", preset="127.0.0.1:10249"),
    Row("", ("--healthz-port",), WHOLE, HONOURED, "deprecated; 0 means nowhere, another number is the port "
        "where --healthz-bind-address has none", bounds=(0, 65535), preset=10256),
    Row("", ("--metrics-port",), WHOLE, HONOURED, "the same for --metrics-bind-address", bounds=(0, 65535),
        preset=10249),
    Row("bindAddressHardFail", ("--bind-address-hard-fail",), BOOL, HONOURED, "exit where one of these "
        "addresses cannot be bound, rather than try again"),
    Row("enableProfiling", ("--profiling",), BOOL, HONOURED, "serve /debug/stacks beside the "
        "metrics, what every thread is doing; there is no /debug/pprof, which is Go's"),
    Row("showHiddenMetricsForVersion", ("--show-hidden-metrics-for-version",), TEXT, IDLE, "no metric is hidden"),
    Row("featureGates", ("--feature-gates",), Kind.GATES, HONOURED, GATES_NOTE, metavar="NAME=BOOL"),
)  # fmt: skip

LOGGING = (
    Row("logging.format", ("--logging-format",), TEXT, HONOURED, "text or json", beside_file=True,
        metavar="FORMAT", preset="text"),
    Row("logging.verbosity", ("-v", "--v"), WHOLE, HONOURED, "0: first syncs and problems; 2: every sync, "
        "and how long it took; 4: what others are asked, and how old changes are when they are in force",
        beside_file=True, metavar="LEVEL", bounds=(0, INT32[1])),
    Row("logging.vmodule", ("--vmodule",), VMODULE, IDLE, _NO_FILES, beside_file=True),
    Row("logging.flushFrequency", ("--log-flush-frequency",), DURATION, IDLE, _AT_ONCE, beside_file=True, preset="5s"),
    *(
        row
        for form in ("json", "text")
        for row in (
            Row(f"logging.options.{form}.infoBufferSize", (f"--log-{form}-info-buffer-size",), TEXT, IDLE,
                _AT_ONCE, beside_file=True, preset="0"),
            Row(f"logging.options.{form}.splitStream", (f"--log-{form}-split-stream",), BOOL, IDLE,
                _AT_ONCE, beside_file=True),
        )
    ),
    Row("", ("--add-dir-header", "--alsologtostderr", "--logtostderr", "--one-output", "--skip-headers",
             "--skip-log-headers"), BOOL, IDLE, _STDERR, beside_file=True),
    Row("", ("--log-backtrace-at", "--log-dir", "--log-file", "--log-file-max-size", "--stderrthreshold"), TEXT,
        IDLE, _STDERR, beside_file=True),
    Row("", ("--boot-id-file", "--machine-id-file"), TEXT, IDLE, "kube-proxy does not read them either",
        beside_file=True),
)  # fmt: skip

WINDOWS = (
    Row("winkernel.networkName", (), TEXT, IDLE, _WINDOWS),
    Row("winkernel.sourceVip", (), TEXT, IDLE, _WINDOWS),
    Row("winkernel.enableDSR", (), BOOL, IDLE, _WINDOWS, quiet=(True,)),
    Row("winkernel.rootHnsEndpointName", (), TEXT, IDLE, _WINDOWS),
    Row("winkernel.forwardHealthCheckVip", (), BOOL, IDLE, _WINDOWS),
    Row("windowsRunAsService", ("--windows-service",), BOOL, REFUSED, _WINDOWS),
    Row("", ("--network-name", "--source-vip", "--root-hnsendpoint-name"), TEXT, REFUSED, _WINDOWS),
    Row("", ("--enable-dsr", "--forward-healthcheck-vip"), BOOL, REFUSED, _WINDOWS),
)

ROWS: tuple[Row, ...] = (*OWN, *CONTROL, *CLIENT, *NODE, *PODS, *RULES, *SERVING, *LOGGING, *WINDOWS)
FIELDS: dict[str, Row] = {row.field: row for row in ROWS if row.field}
FLAGS: dict[str, Row] = {flag: row for row in ROWS for flag in row.flags}


def rows_of(kind: Kind) -> Iterator[Row]:
    """Yield the rows of fields of one kind."""
    return (row for row in FIELDS.values() if row.kind is kind)


def help_of(flag: str) -> str:
    """Return what --help says of a flag: the row's note, as a sentence."""
    note = FLAGS[flag].note
    return f"{note[0].upper()}{note[1:]}."
