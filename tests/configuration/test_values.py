"""Values that cannot be meant (behaviour.md I.2): each is told by its field or flag, and all of them at once."""

from typing import Any, NamedTuple

import pytest

from knft.errors import ConfigurationError, KnftError
from tests.configuration.loading import config, load, of_paths
from tests.support.kube_objects import parametrize_rows

LOCALHOST = (
    "NodePorts on loopback addresses are not served, as in kube-proxy's nftables mode; "
    "leave out 'localhost' and connect to a node address or the cluster IP"
)
PORTS = "is not an IP address and a port such as 0.0.0.0:10256 or [::]:10256"
A_CIDR = "is not a CIDR such as 10.244.0.0/16 or fd00:10:244::/48"
MODES = "use nftables, iptables, ipvs or no mode"


class Bad(NamedTuple):
    """Fields by their paths, and the field that is wrong with what is said of it."""

    fields: dict[str, Any]
    path: str
    said: str


def bad(path: str, value: Any, said: str, **others: Any) -> Bad:
    return Bad({**{name.replace("__", "."): other for name, other in others.items()}, path: value}, path, said)


BAD = {
    "a mode of Windows": bad("mode", "kernelspace",
                             "'kernelspace': kube-proxy has that mode on Windows only; knft runs on Linux"),
    "a mode of long ago": bad("mode", "userspace", "'userspace': kube-proxy no longer has that mode"),
    "no mode": bad("mode", "ebpf", f"'ebpf': {MODES}"),
    "a mode in capitals": bad("mode", "NFTables", f"'NFTables': {MODES}"),
    "a bit too high": bad("iptables.masqueradeBit", 32, "32 is not between 0 and 31"),
    "a bit too low, in any mode": bad("iptables.masqueradeBit", -1, "-1 is not between 0 and 31", mode="nftables"),
    "a bit of mode nftables": bad("nftables.masqueradeBit", 32, "32 is not between 0 and 31", mode="nftables"),
    "a period of 0 that is less": bad("iptables.syncPeriod", "-1s",
                                      "-1s must be more than 0 and not less than {}iptables.minSyncPeriod, 1s"),
    "pauses that exceed each other": bad(
        "iptables.syncPeriod", "10s", "10s must be more than 0 and not less than {}iptables.minSyncPeriod, 11s",
        iptables__minSyncPeriod="11s",
    ),
    "those of mode ipvs": bad(
        "ipvs.syncPeriod", "10s", "10s must be more than 0 and not less than {}ipvs.minSyncPeriod, 1m0s",
        ipvs__minSyncPeriod="60s", mode="ipvs",
    ),
    "those of mode nftables": bad(
        "nftables.syncPeriod", "500ms", "500ms must be more than 0 and not less than {}nftables.minSyncPeriod, 1s",
        mode="nftables",
    ),
    "a shortest pause below 0": bad("iptables.minSyncPeriod", "-5ms", "-5ms is less than 0"),
    "a period of more than a year": bad("iptables.syncPeriod", "9000h", "'9000h0m0s' is longer than a year"),
    "configSyncPeriod": bad("configSyncPeriod", "-1m", "-1m0s must be more than 0"),
    "a duration that Go cannot hold": bad("conntrack.udpTimeout", "3000000h",
                                          "'3000000h' is longer than 292 years, the longest Go duration"),
    "oomScoreAdj": bad("oomScoreAdj", -1001, "-1001 is not between -1000 and 1000"),
    "conntrack.maxPerCore": bad("conntrack.maxPerCore", -1, "-1 is not between 0 and 2147483647"),
    "conntrack.min": bad("conntrack.min", -1, "-1 is not between 0 and 2147483647"),
    "conntrack.tcpEstablishedTimeout": bad("conntrack.tcpEstablishedTimeout", "-1s", "-1s is less than 0"),
    "conntrack.tcpCloseWaitTimeout": bad("conntrack.tcpCloseWaitTimeout", "-1s", "-1s is less than 0"),
    "conntrack.udpTimeout": bad("conntrack.udpTimeout", "-1s", "-1s is less than 0"),
    "conntrack.udpStreamTimeout": bad("conntrack.udpStreamTimeout", "-1s", "-1s is less than 0"),
    "burst": bad("clientConnection.burst", -1, "-1 is not between 0 and 2147483647"),
    "qps": bad("clientConnection.qps", float("nan"), "it must be a number"),
    "bindAddress": bad("bindAddress", "node-1", "'node-1' is not an IP address"),
    "healthzBindAddress, a name": bad("healthzBindAddress", "localhost:10256", f"'localhost:10256' {PORTS}"),
    "healthzBindAddress, no address": bad("healthzBindAddress", ":10256", f"':10256' {PORTS}"),
    "healthzBindAddress, no port": bad("healthzBindAddress", "192.0.2.1:", f"'192.0.2.1:' {PORTS}"),
    "metricsBindAddress, port 0": bad("metricsBindAddress", "192.0.2.1:0", f"'192.0.2.1:0' {PORTS}"),
    "metricsBindAddress, a port too high": bad("metricsBindAddress", "[::1]:65536", f"'[::1]:65536' {PORTS}"),
    "metricsBindAddress, a port that is written too long": bad("metricsBindAddress", "0.0.0.0:0000080",
                                                               f"'0.0.0.0:0000080' {PORTS}"),
    "metricsBindAddress, a port's name": bad("metricsBindAddress", "[::1]:http", f"'[::1]:http' {PORTS}"),
    "portRange": bad("portRange", "a-b", "'a-b' is not a port range such as 30000-32767"),
    "portRange, backwards": bad("portRange", "9-8", "'9-8' is not a port range such as 30000-32767"),
    "portRange, too high": bad("portRange", "65536", "'65536' is not a port range such as 30000-32767"),
    "showHiddenMetricsForVersion": bad("showHiddenMetricsForVersion", "last", "'last' is not a version such as 1.36"),
    "nodePortAddresses": bad("nodePortAddresses", ["10.0.0.0/8", "10.0.0.1"], f"'10.0.0.1' {A_CIDR}"),
    "nodePortAddresses, localhost": bad("nodePortAddresses", ["primary", "localhost"], LOCALHOST),
    "detectLocalMode": bad("detectLocalMode", "ClusterCidr",
                           "'ClusterCidr' is not ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix"),
    "a bridge that is missing": bad("detectLocal.bridgeInterface", "",
                                    "it is required with {}detectLocalMode BridgeInterface",
                                    detectLocalMode="BridgeInterface"),
    "a prefix that is missing": bad("detectLocal.interfaceNamePrefix", "",
                                    "it is required with {}detectLocalMode InterfaceNamePrefix",
                                    detectLocalMode="InterfaceNamePrefix"),
    "a bridge that no interface is called": bad(
        "detectLocal.bridgeInterface", "br 0; drop",
        "'br 0; drop' is not the name of an interface (letters, digits and _.@:-, at most 15)",
        detectLocalMode="BridgeInterface",
    ),
    "clusterCIDR": bad("clusterCIDR", "10.244.0.0", f"'10.244.0.0' {A_CIDR}"),
    "clusterCIDR, two of a family": bad(
        "clusterCIDR", "10.244.0.0/16,10.245.0.0/16",
        "two IPv4 values, 10.244.0.0/16 and 10.245.0.0/16; give at most one per family",
    ),
    "excludeCIDRs in mode ipvs": bad("ipvs.excludeCIDRs", ["x"], f"'x' {A_CIDR}", mode="ipvs"),
    "a time of IPVS in mode ipvs": bad("ipvs.udpTimeout", "-1s", "-1s is less than 0", mode="ipvs"),
    "a format": bad("logging.format", "xml", "'xml' is not text or json"),
    "a gate": bad("featureGates", {"Frobnicate": False}, "unknown feature gate Frobnicate"),
    "a gate that cannot be turned off": bad("featureGates", {"NFTablesProxyMode": False},
                                            "NFTablesProxyMode cannot be false: knft always uses nftables"),
    "Windows": bad("windowsRunAsService", value=True,
                   said="true is rejected: only kube-proxy on Windows has it; knft runs on Linux"),
}  # fmt: skip

IN_FILE = "config.conf: KubeProxyConfiguration."


@parametrize_rows(BAD)
def test_invalid_field_is_an_error(row: Bad) -> None:
    text = of_paths(row.fields)
    with pytest.raises(ConfigurationError) as raised:
        load(text=text)
    assert str(raised.value) == f"{IN_FILE}{row.path}: {row.said.format('KubeProxyConfiguration.')}"


HARMLESS: dict[str, dict[str, Any]] = {
    "a time of IPVS below 0": {"ipvs.udpTimeout": "-1s"},
    "excludeCIDRs": {"ipvs.excludeCIDRs": ["x"]},
    "a bit of mode nftables": {"nftables.masqueradeBit": 99},
    "pauses of another mode": {"nftables.syncPeriod": "1s", "nftables.minSyncPeriod": "5s"},
    "pods' addresses in another mode": {"clusterCIDR": "x", "detectLocalMode": "NodeCIDR"},
    "an interface in another mode": {"detectLocal.bridgeInterface": "br 0; drop"},
}


@pytest.mark.parametrize("name", HARMLESS)
def test_what_the_mode_does_not_ask_for_is_not_looked_at(name: str) -> None:
    """As in kube-proxy: it may be nonsense."""
    load(text=of_paths(HARMLESS[name]))


OF_TYPES = {
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
    "a duration with a line after it": (
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
    "text for levels of files": (
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


@pytest.mark.parametrize("name", OF_TYPES)
def test_a_wrong_type_is_told(name: str) -> None:
    fields, path, said = OF_TYPES[name]
    with pytest.raises(ConfigurationError) as raised:
        load(text=config(fields))
    assert str(raised.value) == f"{IN_FILE}{path}: {said}"


def test_all_wrong_types_are_told_at_once() -> None:
    with pytest.raises(ConfigurationError) as raised:
        load(text=config("oomScoreAdj: x\niptables: {syncPeriod: 5}\nmode: 7"))
    assert [line.split(": ")[1] for line in str(raised.value).splitlines()] == [
        "KubeProxyConfiguration.iptables.syncPeriod",
        "KubeProxyConfiguration.mode",
        "KubeProxyConfiguration.oomScoreAdj",
    ]


def test_all_wrong_values_are_told_at_once() -> None:
    with pytest.raises(ConfigurationError) as raised:
        load("--node-ip=x", text=config("oomScoreAdj: 5000\nbindAddress: x\nmode: x\nfeatureGates: {X: true}"))
    lines = str(raised.value).splitlines()
    assert len(lines) == 5
    assert lines[-1] == "--node-ip: 'x' is not an IP address"


def test_ten_thousand_problems_are_not_all_told() -> None:
    addresses = "\n".join(f"- {number}" for number in range(10_000))
    with pytest.raises(ConfigurationError) as raised:
        load(text=config(f"nodePortAddresses:\n{addresses}"))
    lines = str(raised.value).splitlines()
    assert (len(lines), lines[-1]) == (21, "config.conf: and 9980 more")


OF_FLAGS = {
    "--proxy-mode=kernelspace": (
        "--proxy-mode: 'kernelspace': kube-proxy has that mode on Windows only; knft runs on Linux"
    ),
    "--bind-address=x": "--bind-address: 'x' is not an IP address",
    "--healthz-bind-address=x": f"--healthz-bind-address: 'x' {PORTS}",
    "--oom-score-adj=1001": "--oom-score-adj: 1001 is not between -1000 and 1000",
    "--conntrack-min=-1": "--conntrack-min: -1 is not between 0 and 2147483647",
    "--conntrack-udp-timeout=1": "--conntrack-udp-timeout: '1' is not a duration; write it as in 1s, 500ms or 1m30s",
    "--config-sync-period=0s": "--config-sync-period: 0s must be more than 0",
    "--iptables-sync-period=1ms": (
        "--iptables-sync-period: 1ms must be more than 0 and not less than --min-sync-period, 1s"
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


@pytest.mark.parametrize("flag", OF_FLAGS)
def test_a_flag_that_cannot_be_meant_is_told(flag: str) -> None:
    with pytest.raises(KnftError) as raised:
        load(flag)
    assert str(raised.value) == OF_FLAGS[flag]


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
@pytest.mark.parametrize("text", [None, config()])
def test_a_server_with_a_password_is_refused_without_showing_it(server: str, text: str | None) -> None:
    with pytest.raises(ConfigurationError) as raised:
        load(f"--master={server}", text=text)
    assert str(raised.value) == (
        "--master: a user name or password before @ is not allowed; use https://HOST:PORT, "
        "and credentials in a kubeconfig (--kubeconfig)"
    )


def test_a_flag_of_logging_is_told_as_a_flag_beside_a_file() -> None:
    with pytest.raises(ConfigurationError, match=r"^--logging-format: 'xml' is not text or json$"):
        load("--logging-format=xml", text=config())
    with pytest.raises(
        ConfigurationError,
        match=r"^--sync-period: 1s must be .* KubeProxyConfiguration.iptables.minSyncPeriod, 1m0s$",
    ):
        load("--sync-period=1s", text=config("iptables: {minSyncPeriod: 1m}"))
