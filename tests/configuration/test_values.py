"""Invalid values (docs/behaviour/configuration.md#validation): errors name field or flag, and are reported together."""

from typing import Any, NamedTuple

import pytest

from knft.errors import ConfigurationError, KnftError
from tests.support.kube_objects import parametrize_cases
from tests.support.loaded_settings import config_text, config_with_paths, load

LOCALHOST = (
    "NodePorts are served on loopback addresses only with the feature gate KubeProxyNFTablesLocalhostNodePorts; set "
    "it, or leave out 'localhost' and connect to a node address or the cluster IP"
)
PORTS = "is not an IP address and a port such as 0.0.0.0:10256 or [::]:10256"
A_CIDR = "is not a CIDR such as 10.244.0.0/16 or fd00:10:244::/48"
NOT_A_MODE = "is not a mode; use nftables, iptables or ipvs, or omit it"


class InvalidField(NamedTuple):
    """Fields by their paths; the invalid field and the message about it."""

    fields: dict[str, Any]
    path: str
    message: str


def invalid_field(path: str, value: Any, message: str, **others: Any) -> InvalidField:
    return InvalidField(
        {**{name.replace("__", "."): other for name, other in others.items()}, path: value}, path, message
    )


INVALID_FIELDS = {
    "a mode of Windows": invalid_field(
        "mode", "kernelspace", "'kernelspace' is a mode of kube-proxy on Windows; knft runs on Linux"
    ),
    "a removed mode": invalid_field("mode", "userspace", "'userspace' is a mode that kube-proxy no longer has"),
    "an unknown mode": invalid_field("mode", "ebpf", f"'ebpf' {NOT_A_MODE}"),
    "a mode in capitals": invalid_field("mode", "NFTables", f"'NFTables' {NOT_A_MODE}; did you mean nftables?"),
    "a bit too high": invalid_field("iptables.masqueradeBit", 32, "32 is not between 0 and 31"),
    "a bit too low, in any mode": invalid_field(
        "iptables.masqueradeBit", -1, "-1 is not between 0 and 31", mode="nftables"
    ),
    "a bit in mode nftables": invalid_field(
        "nftables.masqueradeBit", 32, "32 is not between 0 and 31", mode="nftables"
    ),
    "a negative period": invalid_field(
        "iptables.syncPeriod", "-1s", "-1s must be more than 0 and not less than {}iptables.minSyncPeriod, 20ms"
    ),
    "a period less than the minimum period": invalid_field(
        "iptables.syncPeriod",
        "10s",
        "10s must be more than 0 and not less than {}iptables.minSyncPeriod, 11s",
        iptables__minSyncPeriod="11s",
    ),
    "periods of mode ipvs": invalid_field(
        "ipvs.syncPeriod",
        "10s",
        "10s must be more than 0 and not less than {}ipvs.minSyncPeriod, 1m0s",
        ipvs__minSyncPeriod="60s",
        mode="ipvs",
    ),
    "periods of mode nftables": invalid_field(
        "nftables.syncPeriod",
        "5ms",
        "5ms must be more than 0 and not less than {}nftables.minSyncPeriod, 20ms",
        mode="nftables",
    ),
    "a negative minimum period": invalid_field("iptables.minSyncPeriod", "-5ms", "-5ms is less than 0"),
    "a period of more than a year": invalid_field("iptables.syncPeriod", "9000h", "'9000h0m0s' is longer than a year"),
    "configSyncPeriod": invalid_field("configSyncPeriod", "-1m", "-1m0s must be more than 0"),
    "a duration that Go cannot hold": invalid_field(
        "conntrack.udpTimeout", "3000000h", "'3000000h' is longer than 292 years, the longest Go duration"
    ),
    "oomScoreAdj": invalid_field("oomScoreAdj", -1001, "-1001 is not between -1000 and 1000"),
    "conntrack.maxPerCore": invalid_field("conntrack.maxPerCore", -1, "-1 is not between 0 and 2147483647"),
    "conntrack.min": invalid_field("conntrack.min", -1, "-1 is not between 0 and 2147483647"),
    "conntrack.tcpEstablishedTimeout": invalid_field("conntrack.tcpEstablishedTimeout", "-1s", "-1s is less than 0"),
    "conntrack.tcpCloseWaitTimeout": invalid_field("conntrack.tcpCloseWaitTimeout", "-1s", "-1s is less than 0"),
    "conntrack.udpTimeout": invalid_field("conntrack.udpTimeout", "-1s", "-1s is less than 0"),
    "conntrack.udpStreamTimeout": invalid_field("conntrack.udpStreamTimeout", "-1s", "-1s is less than 0"),
    "burst": invalid_field("clientConnection.burst", -1, "-1 is not between 0 and 2147483647"),
    "qps": invalid_field("clientConnection.qps", float("nan"), "it must be a finite number"),
    "bindAddress": invalid_field("bindAddress", "node-1", "'node-1' is not an IP address"),
    "healthzBindAddress, a name": invalid_field("healthzBindAddress", "localhost:10256", f"'localhost:10256' {PORTS}"),
    "healthzBindAddress, no address": invalid_field("healthzBindAddress", ":10256", f"':10256' {PORTS}"),
    "healthzBindAddress, no port": invalid_field("healthzBindAddress", "192.0.2.1:", f"'192.0.2.1:' {PORTS}"),
    "metricsBindAddress, port 0": invalid_field("metricsBindAddress", "192.0.2.1:0", f"'192.0.2.1:0' {PORTS}"),
    "metricsBindAddress, a port too high": invalid_field("metricsBindAddress", "[::1]:65536", f"'[::1]:65536' {PORTS}"),
    "metricsBindAddress, a port with too many digits": invalid_field(
        "metricsBindAddress", "0.0.0.0:0000080", f"'0.0.0.0:0000080' {PORTS}"
    ),
    "metricsBindAddress, a port's name": invalid_field("metricsBindAddress", "[::1]:http", f"'[::1]:http' {PORTS}"),
    "portRange": invalid_field("portRange", "a-b", "'a-b' is not a port range such as 30000-32767"),
    "portRange, backwards": invalid_field("portRange", "9-8", "'9-8' is not a port range such as 30000-32767"),
    "portRange, too high": invalid_field("portRange", "65536", "'65536' is not a port range such as 30000-32767"),
    "showHiddenMetricsForVersion": invalid_field(
        "showHiddenMetricsForVersion", "last", "'last' is not a version such as 1.36"
    ),
    "nodePortAddresses": invalid_field("nodePortAddresses", ["10.0.0.0/8", "10.0.0.1"], f"'10.0.0.1' {A_CIDR}"),
    "nodePortAddresses, localhost": invalid_field("nodePortAddresses", ["primary", "localhost"], LOCALHOST),
    "detectLocalMode": invalid_field(
        "detectLocalMode",
        "ClusterCidr",
        "'ClusterCidr' is not ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix; did you mean ClusterCIDR?",
    ),
    "a missing bridge": invalid_field(
        "detectLocal.bridgeInterface",
        "",
        "it is required with {}detectLocalMode BridgeInterface",
        detectLocalMode="BridgeInterface",
    ),
    "a missing prefix": invalid_field(
        "detectLocal.interfaceNamePrefix",
        "",
        "it is required with {}detectLocalMode InterfaceNamePrefix",
        detectLocalMode="InterfaceNamePrefix",
    ),
    "an invalid name of a bridge": invalid_field(
        "detectLocal.bridgeInterface",
        "br 0; drop",
        "'br 0; drop' is not the name of an interface (letters, digits and _.@:-, at most 15)",
        detectLocalMode="BridgeInterface",
    ),
    "clusterCIDR": invalid_field("clusterCIDR", "10.244.0.0", f"'10.244.0.0' {A_CIDR}"),
    "clusterCIDR, two of a family": invalid_field(
        "clusterCIDR",
        "10.244.0.0/16,10.245.0.0/16",
        "two IPv4 values, 10.244.0.0/16 and 10.245.0.0/16; give at most one per family",
    ),
    "excludeCIDRs in mode ipvs": invalid_field("ipvs.excludeCIDRs", ["x"], f"'x' {A_CIDR}", mode="ipvs"),
    "a timeout of IPVS in mode ipvs": invalid_field("ipvs.udpTimeout", "-1s", "-1s is less than 0", mode="ipvs"),
    "a log format": invalid_field("logging.format", "xml", "'xml' is not text or json"),
    "an unknown feature gate": invalid_field("featureGates", {"Frobnicate": False}, "unknown feature gate Frobnicate"),
    "a locked feature gate": invalid_field(
        "featureGates", {"NFTablesProxyMode": False}, "NFTablesProxyMode cannot be false: knft always uses nftables"
    ),
    "Windows": invalid_field(
        "windowsRunAsService",
        value=True,
        message="true is rejected: an option of kube-proxy on Windows; knft runs on Linux",
    ),
}

IN_FILE = "config.conf: KubeProxyConfiguration."


@parametrize_cases(INVALID_FIELDS)
def test_invalid_field_is_an_error(case: InvalidField) -> None:
    text = config_with_paths(case.fields)
    with pytest.raises(ConfigurationError) as raised:
        load(text=text)
    assert str(raised.value) == f"{IN_FILE}{case.path}: {case.message.format('KubeProxyConfiguration.')}"


UNUSED_FIELDS: dict[str, dict[str, Any]] = {
    "a negative timeout of IPVS": {"ipvs.udpTimeout": "-1s"},
    "excludeCIDRs": {"ipvs.excludeCIDRs": ["x"]},
    "a bit of mode nftables": {"nftables.masqueradeBit": 99},
    "periods of another mode": {"nftables.syncPeriod": "1s", "nftables.minSyncPeriod": "5s"},
    "pod ranges in another local mode": {"clusterCIDR": "x", "detectLocalMode": "NodeCIDR"},
    "an interface in another local mode": {"detectLocal.bridgeInterface": "br 0; drop"},
}


@pytest.mark.parametrize("name", UNUSED_FIELDS)
def test_invalid_field_is_accepted_if_the_mode_does_not_use_it(name: str) -> None:
    """kube-proxy does not validate such fields either."""
    load(text=config_with_paths(UNUSED_FIELDS[name]))


WRONG_TYPES = {
    "text for a number": (
        "iptables: {masqueradeBit: fourteen}",
        "iptables.masqueradeBit",
        "it is text, 'fourteen', but must be a whole number",
    ),
    "a boolean for a number": (
        "oomScoreAdj: true",
        "oomScoreAdj",
        "it is a boolean, true, but must be a whole number",
    ),
    "a fraction for a whole number": (
        "conntrack: {min: 1.5}",
        "conntrack.min",
        "it is a number, 1.5, but must be a whole number",
    ),
    "a number too large for Go": (
        "oomScoreAdj: 3000000000",
        "oomScoreAdj",
        "3000000000 is not between -2147483648 and 2147483647",
    ),
    "text for a boolean": (
        "enableProfiling: 'true'",
        "enableProfiling",
        "it is text, 'true', but must be true or false",
    ),
    "a number for text": ("clusterCIDR: 10", "clusterCIDR", "it is a number, 10, but must be text"),
    "a number for a duration": (
        "configSyncPeriod: 30",
        "configSyncPeriod",
        "it is a number, 30, but must be a duration",
    ),
    "no duration": (
        "conntrack: {udpTimeout: soon}",
        "conntrack.udpTimeout",
        "'soon' is not a duration; write it as in 1s, 500ms or 1m30s",
    ),
    "a duration with a newline": (
        'configSyncPeriod: "1s\\n"',
        "configSyncPeriod",
        "'1s\\n' is not a duration; write it as in 1s, 500ms or 1m30s",
    ),
    "text for a list": (
        "nodePortAddresses: primary",
        "nodePortAddresses",
        "it is text, 'primary', but must be a list of texts",
    ),
    "a number in a list": (
        "nodePortAddresses: [primary, 10]",
        "nodePortAddresses[1]",
        "it is a number, 10, but must be text",
    ),
    "a list for a section": ("iptables: []", "iptables", "it is a list, but must be a mapping"),
    "text for a section": ("conntrack: none", "conntrack", "it is text, 'none', but must be a mapping"),
    "a section for text": ("mode: {name: ipvs}", "mode", "it is a mapping, but must be text"),
    "text for a gate": (
        "featureGates: {AllAlpha: 'yes'}",
        "featureGates.AllAlpha",
        "it is text, 'yes', but must be true or false",
    ),
    "a list for gates": (
        "featureGates: [AllAlpha=true]",
        "featureGates",
        "it is a list, but must be a mapping of names to true or false",
    ),
    "a level below 0": ("logging: {verbosity: -1}", "logging.verbosity", "-1 is not between 0 and 2147483647"),
    "text for vmodule": (
        "logging: {vmodule: a=1}",
        "logging.vmodule",
        "it is text, 'a=1', but must be a list of file patterns and levels",
    ),
    "no quantity": (
        "logging: {options: {json: {infoBufferSize: big}}}",
        "logging.options.json.infoBufferSize",
        "'big' is not a quantity of bytes; write it as in 4Ki",
    ),
    "an infinite rate": (
        "clientConnection: {qps: .inf}",
        "clientConnection.qps",
        ".inf is not between -3.4e+38 and 3.4e+38",
    ),
}


@pytest.mark.parametrize("name", WRONG_TYPES)
def test_wrong_type_is_an_error(name: str) -> None:
    fields, path, message = WRONG_TYPES[name]
    with pytest.raises(ConfigurationError) as raised:
        load(text=config_text(fields))
    assert str(raised.value) == f"{IN_FILE}{path}: {message}"


def test_all_wrong_types_are_reported_together() -> None:
    with pytest.raises(ConfigurationError) as raised:
        load(text=config_text("oomScoreAdj: x\niptables: {syncPeriod: 5}\nmode: 7"))
    assert [line.split(": ")[1] for line in str(raised.value).splitlines()] == [
        "KubeProxyConfiguration.oomScoreAdj",
        "KubeProxyConfiguration.iptables.syncPeriod",
        "KubeProxyConfiguration.mode",
    ]


def test_all_invalid_values_are_reported_together() -> None:
    with pytest.raises(ConfigurationError) as raised:
        load("--node-ip=x", text=config_text("oomScoreAdj: 5000\nbindAddress: x\nmode: x\nfeatureGates: {X: true}"))
    lines = str(raised.value).splitlines()
    assert len(lines) == 5
    assert lines[-1] == "--node-ip: 'x' is not an IP address"


def test_number_of_reported_problems_is_limited() -> None:
    addresses = "\n".join(f"- {number}" for number in range(10_000))
    with pytest.raises(ConfigurationError) as raised:
        load(text=config_text(f"nodePortAddresses:\n{addresses}"))
    lines = str(raised.value).splitlines()
    assert (len(lines), lines[-1]) == (21, "config.conf: not shown: 9980 more")


INVALID_FLAGS = {
    "--proxy-mode=kernelspace": ("--proxy-mode: 'kernelspace' is a mode of kube-proxy on Windows; knft runs on Linux"),
    "--bind-address=x": "--bind-address: 'x' is not an IP address",
    "--healthz-bind-address=x": f"--healthz-bind-address: 'x' {PORTS}",
    "--oom-score-adj=1001": "--oom-score-adj: 1001 is not between -1000 and 1000",
    "--conntrack-min=-1": "--conntrack-min: -1 is not between 0 and 2147483647",
    "--conntrack-udp-timeout=1": "--conntrack-udp-timeout: '1' is not a duration; write it as in 1s, 500ms or 1m30s",
    "--config-sync-period=0s": "--config-sync-period: 0s must be more than 0",
    "--iptables-sync-period=1ms": (
        "--iptables-sync-period: 1ms must be more than 0 and not less than --min-sync-period, 20ms"
    ),
    "--nodeport-addresses=localhost": f"--nodeport-addresses: {LOCALHOST}",
    "--detect-local-mode=BridgeInterface": (
        "--pod-bridge-interface: it is required with --detect-local-mode BridgeInterface"
    ),
    "--detect-local-mode=x": (
        "--detect-local-mode: 'x' is not ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix"
    ),
    "--cluster-cidr=::/0,::/1": "--cluster-cidr: two IPv6 values, ::/0 and ::/1; give at most one per family",
    "--feature-gates=X": "--feature-gates: 'X' is not of the form NAME=true or NAME=false",
    "--feature-gates=AllAlpha=maybe": "--feature-gates: 'AllAlpha=maybe' is not of the form NAME=true or NAME=false",
    "--vmodule=a": "--vmodule: 'a' is not of the form PATTERN=LEVEL",
    "--logging-format=xml": "--logging-format: 'xml' is not text or json",
    "--proxy-port-range=x": "--proxy-port-range: 'x' is not a port range such as 30000-32767",
}


@pytest.mark.parametrize("flag", INVALID_FLAGS)
def test_invalid_flag_is_an_error(flag: str) -> None:
    with pytest.raises(KnftError) as raised:
        load(flag)
    assert str(raised.value) == INVALID_FLAGS[flag]


@pytest.mark.parametrize(
    "server",
    [
        "https://user:secret@192.0.2.1:6443",
        "https://secret@192.0.2.1",
        "user:secret@192.0.2.1:6443",
        "https:user:secret@192.0.2.1",
        "https://user:sec/secret@192.0.2.1",
    ],
)
@pytest.mark.parametrize("text", [None, config_text()])
def test_password_in_server_url_is_rejected_and_not_printed(server: str, text: str | None) -> None:
    with pytest.raises(ConfigurationError) as raised:
        load(f"--master={server}", text=text)
    assert str(raised.value) == (
        "--master: a user name or password before @ is not allowed; use https://HOST:PORT, "
        "and credentials in a kubeconfig (--kubeconfig)"
    )


def test_error_names_the_flag_if_a_file_is_given_too() -> None:
    with pytest.raises(ConfigurationError, match=r"^--logging-format: 'xml' is not text or json$"):
        load("--logging-format=xml", text=config_text())
    with pytest.raises(
        ConfigurationError,
        match=r"^--sync-period: 1s must be .* KubeProxyConfiguration.iptables.minSyncPeriod, 1m0s$",
    ):
        load("--sync-period=1s", text=config_text("iptables: {minSyncPeriod: 1m}"))
