"""Every option: supported ones change Settings, ignored ones warn, rejected ones are errors."""

from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from knft.cli.go_flags import GoOption
from knft.cli.main import cli, run
from knft.configuration.document import default_document, get_field
from knft.configuration.gates import GATES
from knft.configuration.options import Kind, Support
from knft.configuration.schema import schema
from knft.configuration.settings import Settings
from knft.configuration.table import FIELDS, FLAGS, OPTIONS
from knft.errors import ConfigurationError, KnftError, UsageError
from tests.configuration.document_tables import DOCUMENT, with_tables
from tests.configuration.loading import KUBEADM, PRIMARY, load, of_paths

EXAMPLES: dict[Kind, Any] = {
    Kind.BOOL: True,
    Kind.INTEGER: 7,
    Kind.FLOAT: 2.5,
    Kind.STRING: "1.2",
    Kind.DURATION: "40s",
    Kind.LIST: ["10.0.0.0/8"],
    Kind.VMODULE: [{"filePattern": "proxier", "verbosity": 4}],
}
UNLIKE: dict[str, Any] = {
    "bindAddress": "192.0.2.1",
    "clientConnection.kubeconfig": "/kubeconfig",
    "clusterCIDR": "10.244.0.0/16,fd00:10:244::/48",
    "configSyncPeriod": "1m",
    "detectLocal.bridgeInterface": "cbr0",
    "detectLocal.interfaceNamePrefix": "veth",
    "detectLocalMode": "NodeCIDR",
    "featureGates": {"AllAlpha": True},
    "healthzBindAddress": "192.0.2.1:80",
    "hostnameOverride": "node-7",
    "iptables.minSyncPeriod": "4s",
    "iptables.localhostNodePorts": False,
    "ipvs.minSyncPeriod": "4s",
    "logging.format": "json",
    "metricsBindAddress": "192.0.2.1:81",
    "mode": "ipvs",
    "nftables.minSyncPeriod": "4s",
    "portRange": "30000-32767",
}
"""Values of fields that their kind's example does not suit."""
NEEDED: dict[str, dict[str, Any]] = {
    "detectLocal.bridgeInterface": {"detectLocalMode": "BridgeInterface"},
    "detectLocal.interfaceNamePrefix": {"detectLocalMode": "InterfaceNamePrefix"},
    **{
        path: {"mode": path.partition(".")[0]}
        for path, row in FIELDS.items()
        if row.modes in (("ipvs",), ("nftables",))
    },
}
"""What else a field takes to mean something."""
OTHER: dict[str, Any] = {"detectLocal.bridgeInterface": "br9", "detectLocal.interfaceNamePrefix": "tap"}
"""Values to compare with where a field cannot be left out."""
SILENT = {"iptables.localhostNodePorts", "winkernel.enableDSR"}
"""Accepted fields whose value here is what knft does anyway, or another default of kube-proxy's."""

OF_FLAGS: dict[str, str] = {
    "--cluster-cidr": "10.244.0.0/16",
    "--feature-gates": "AllAlpha=true",
    "--vmodule": "proxier=4",
    "--healthz-port": "0",
    "--metrics-port": "0",
    "--master": "https://192.0.2.1",
    "--node": "node-7",
    "--node-ip": "192.0.2.1",
    "--service-cidr": "10.96.0.0/16",
    "--min-sync-period": "4s",
}
ELSEWHERE = {"--manifests", "--once", "--config", "--write-config-to", "--cleanup", "--init-only", "--version"}
"""Flags that say what to do with Settings: see test_command.py."""


def example(path: str) -> Any:
    return UNLIKE.get(path, EXAMPLES.get(FIELDS[path].kind))


def of_field(path: str, value: Any) -> Settings:
    """Return the Settings of a file that says what the field needs, and of the field a value, unless it is None."""
    said = {} if value is None else {path: value}
    return load(text=of_paths({**NEEDED.get(path, {}), **said}))


def without(settings: Settings) -> Settings:
    """Return what a process does of settings: neither the document nor the warnings are that."""
    return Settings(
        **{name: getattr(settings, name) for name in settings.__struct_fields__ if name not in ("document", "warnings")}
    )


@pytest.mark.parametrize(
    "path", [path for path, row in FIELDS.items() if row.support is Support.SUPPORTED and path != "featureGates"]
)
def test_supported_field_changes_settings(path: str) -> None:
    assert without(of_field(path, OTHER.get(path))) != without(of_field(path, example(path)))


@pytest.mark.parametrize("path", [path for path, row in FIELDS.items() if row.support is Support.IGNORED])
def test_ignored_field_only_warns(path: str) -> None:
    settings = of_field(path, example(path))
    assert without(settings) == without(load(text=of_paths({})))
    told = [sentence for sentence in settings.warnings if f"KubeProxyConfiguration.{path}: " in sentence]
    assert len(told) == (path not in SILENT)
    assert all(sentence.endswith(f"has no effect: {FIELDS[path].description}") for sentence in told)


@pytest.mark.parametrize("path", [path for path, row in FIELDS.items() if row.support is Support.REJECTED])
def test_rejected_field_is_an_error(path: str) -> None:
    with pytest.raises(
        ConfigurationError, match=f"KubeProxyConfiguration.{path}: true is rejected: {FIELDS[path].description}"
    ):
        of_field(path, example(path))


@pytest.mark.parametrize("path", FIELDS)
def test_default_value_gives_no_warning(path: str) -> None:
    """kubeadm writes them all."""
    given = FIELDS[path].default if path != "mode" else ""
    needed = {} if path.startswith("detectLocal.") else NEEDED.get(path, {})
    settings = load(text=of_paths({**needed, path: given}))
    assert settings == load(text=of_paths(needed))
    told = [sentence for sentence in settings.warnings if f"KubeProxyConfiguration.{path}: " in sentence]
    assert len(told) == (path == "nodePortAddresses")


class OfFlag(NamedTuple):
    """The Settings with a flag and without it."""

    before: Settings
    after: Settings


def with_flag(flag: str) -> OfFlag:
    """Load with a flag, and what it needs, and without it."""
    row = FLAGS[flag]
    value = OF_FLAGS.get(flag, example(row.field) if row.field else EXAMPLES[row.kind])
    text = {True: "true", False: "false"}.get(value) if isinstance(value, bool) else value
    text = ",".join(text) if isinstance(text, list) else text
    needed = {
        "--pod-bridge-interface": ("--detect-local-mode=BridgeInterface",),
        "--pod-interface-name-prefix": ("--detect-local-mode=InterfaceNamePrefix",),
        "--proxy-mode": ("--ipvs-sync-period=40s",),
        "--ipvs-sync-period": ("--proxy-mode=ipvs",),
        "--ipvs-min-sync-period": ("--proxy-mode=ipvs",),
    }.get(flag, ())
    other = {"--pod-bridge-interface": ("--pod-bridge-interface=br9",),
             "--pod-interface-name-prefix": ("--pod-interface-name-prefix=tap",)}.get(flag, ())  # fmt: skip
    name = f"{flag} " if flag == "-v" else f"{flag}="
    return OfFlag(load(*needed, *other), load(*needed, *f"{name}{text}".split(" ")))


def flags_of(verdict: Support) -> list[str]:
    others = {*ELSEWHERE, "--feature-gates"}
    return [flag for flag, row in FLAGS.items() if row.support is verdict and flag not in others]


@pytest.mark.parametrize("flag", flags_of(Support.SUPPORTED))
def test_supported_flag_changes_settings(flag: str) -> None:
    before, after = with_flag(flag)
    assert without(before) != without(after)


@pytest.mark.parametrize("flag", flags_of(Support.IGNORED))
def test_an_accepted_flag_changes_nothing_and_warns(flag: str) -> None:
    before, after = with_flag(flag)
    assert without(before) == without(after)
    assert [*after.warnings, *before.warnings] == [f"{flag}: {FLAGS[flag].description}", *2 * before.warnings]


@pytest.mark.parametrize("flag", flags_of(Support.REJECTED))
def test_a_refused_flag_fails_with_the_reason(flag: str) -> None:
    with pytest.raises(UsageError, match=f"^{flag}: it is rejected: {FLAGS[flag].description}$"):
        with_flag(flag)


def test_no_row_is_left_out_and_none_stands_twice() -> None:
    fields = [row.field for row in OPTIONS if row.field]
    flags = [flag for row in OPTIONS for flag in row.flags]
    assert (len(fields), len(flags)) == (len(FIELDS), len(FLAGS))
    assert all((row.field or row.flags) and row.description for row in OPTIONS)


def test_the_command_line_has_the_flags_of_the_table() -> None:
    names = {name for param in run.params if isinstance(param, GoOption) for name in param.opts}
    assert names == set(FLAGS)


def test_kube_proxys_flags_and_fields_are_all_there() -> None:
    """As behaviour.md I.1 and I.3 list them; the words of the flags of logging are I.3's "..."."""
    listed = """
        config write-config-to cleanup init-only feature-gates kubeconfig master kube-api-content-type kube-api-burst
        kube-api-qps hostname-override bind-address healthz-bind-address metrics-bind-address bind-address-hard-fail
        profiling show-hidden-metrics-for-version proxy-mode iptables-masquerade-bit masquerade-all
        iptables-localhost-nodeports iptables-sync-period iptables-min-sync-period ipvs-sync-period
        ipvs-min-sync-period ipvs-scheduler ipvs-exclude-cidrs ipvs-strict-arp ipvs-tcp-timeout ipvs-tcpfin-timeout
        ipvs-udp-timeout detect-local-mode pod-bridge-interface pod-interface-name-prefix cluster-cidr
        nodeport-addresses oom-score-adj conntrack-max-per-core conntrack-min conntrack-tcp-timeout-established
        conntrack-tcp-timeout-close-wait conntrack-tcp-be-liberal conntrack-udp-timeout conntrack-udp-timeout-stream
        config-sync-period healthz-port metrics-port v vmodule logging-format log-flush-frequency version
        proxy-port-range
    """
    assert {f"--{name}" for name in listed.split()} <= set(FLAGS)
    fields = """
        featureGates clientConnection.kubeconfig clientConnection.acceptContentTypes clientConnection.contentType
        clientConnection.qps clientConnection.burst logging.format logging.flushFrequency logging.verbosity
        logging.vmodule logging.options.json.infoBufferSize logging.options.json.splitStream
        logging.options.text.infoBufferSize logging.options.text.splitStream hostnameOverride bindAddress
        healthzBindAddress metricsBindAddress bindAddressHardFail enableProfiling showHiddenMetricsForVersion mode
        iptables.masqueradeBit iptables.masqueradeAll iptables.localhostNodePorts iptables.syncPeriod
        iptables.minSyncPeriod ipvs.syncPeriod ipvs.minSyncPeriod ipvs.scheduler ipvs.excludeCIDRs ipvs.strictARP
        ipvs.tcpTimeout ipvs.tcpFinTimeout ipvs.udpTimeout nftables.masqueradeBit nftables.masqueradeAll
        nftables.syncPeriod nftables.minSyncPeriod winkernel.networkName winkernel.sourceVip winkernel.enableDSR
        winkernel.rootHnsEndpointName winkernel.forwardHealthCheckVip detectLocalMode detectLocal.bridgeInterface
        detectLocal.interfaceNamePrefix clusterCIDR nodePortAddresses oomScoreAdj conntrack.maxPerCore conntrack.min
        conntrack.tcpEstablishedTimeout conntrack.tcpCloseWaitTimeout conntrack.tcpBeLiberal conntrack.udpTimeout
        conntrack.udpStreamTimeout configSyncPeriod portRange windowsRunAsService
    """
    assert set(fields.split()) == set(FIELDS)


def _paths(node: dict[str, Any], prefix: str = "") -> set[str]:
    found: set[str] = set()
    for name, value in node["properties"].items():
        found |= _paths(value, f"{prefix}{name}.") if "properties" in value else {prefix + name}
    return found


def test_the_schema_has_the_fields_of_the_table() -> None:
    assert _paths(schema()) - {"apiVersion", "kind"} == set(FIELDS)


def test_the_schema_has_the_types_of_the_table() -> None:
    types = {
        Kind.BOOL: "boolean", Kind.INTEGER: "int32", Kind.FLOAT: "float32", Kind.STRING: "text",
        Kind.DURATION: "duration",
        Kind.LIST: "texts", Kind.FEATURE_GATES: "gates", Kind.VMODULE: "vmodule",
    }  # fmt: skip
    others = {
        "logging.flushFrequency": "durationOrNanoseconds",
        "logging.verbosity": "level",
        "logging.options.json.infoBufferSize": "quantity",
        "logging.options.text.infoBufferSize": "quantity",
    }
    for path, row in FIELDS.items():
        node: Any = schema()
        for part in path.split("."):
            node = node["properties"][part]
        assert node["$ref"] == f"#/$defs/{others.get(path, types[row.kind])}", path


def test_document_has_current_tables() -> None:
    text = DOCUMENT.read_text()
    assert text == with_tables(text), "run python -m tests.configuration.document_tables"


def test_help_lists_supported_flags_only() -> None:
    text = CliRunner().invoke(cli, ["run", "--help"]).output
    for flag, row in FLAGS.items():
        assert (f" {flag} " in text.replace(",", " ")) is (row.support is Support.SUPPORTED), flag


def test_defaults_are_a_valid_configuration() -> None:
    assert (
        load(text=of_paths({path: get_field(default_document(), path) for path in FIELDS})).document == load().document
    )
    assert without(load(text=KUBEADM.read_text())) != without(load())


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("on", [True, False])
def test_known_gate_warns_or_is_rejected(gate: str, on: bool) -> None:  # noqa: FBT001
    known = GATES[gate]
    flag = f"--feature-gates={gate}={str(on).lower()}"
    if known.is_locked and not on:
        with pytest.raises(ConfigurationError, match=f"^--feature-gates: {gate} cannot be false: {known.description}$"):
            load(flag)
        return
    told = (
        ()
        if on is (known.fixed_value or False)
        else (f"--feature-gates: {gate}={str(on).lower()} has no effect: {known.description}",)
    )
    settings = load(flag, PRIMARY)
    assert (settings.warnings, settings.document["featureGates"]) == (told, {gate: on})


def test_unknown_gate_is_rejected() -> None:
    with pytest.raises(KnftError, match=r"^--feature-gates: unknown feature gate Frobnicate$"):
        load("--feature-gates=Frobnicate=true,AllAlpha=true")
