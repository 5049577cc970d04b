"""Every option: supported ones change Settings, ignored ones warn, rejected ones are errors."""

from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from knft.cli.commands import cli, run
from knft.cli.go_flags import GoOption
from knft.config import LOCALHOST_GATE
from knft.configuration.document import default_document, get_field
from knft.configuration.gates import GATES
from knft.configuration.options import Kind, Support
from knft.configuration.schema import schema
from knft.configuration.settings import Settings
from knft.configuration.table import FIELDS, FLAGS, OPTIONS
from knft.errors import ConfigurationError, KnftError
from tests.configuration.document_tables import DOCUMENT, with_tables
from tests.support.loaded_settings import KUBEADM, PRIMARY_FLAG, config_with_paths, load

KIND_EXAMPLES: dict[Kind, Any] = {
    Kind.BOOL: True,
    Kind.INTEGER: 7,
    Kind.FLOAT: 2.5,
    Kind.STRING: "1.2",
    Kind.DURATION: "40s",
    Kind.LIST: ["10.0.0.0/8"],
    Kind.VMODULE: [{"filePattern": "proxier", "verbosity": 4}],
}
FIELD_EXAMPLES: dict[str, Any] = {
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
"""Example values of fields for which the example of their kind is invalid or has no effect."""
REQUIRED_FIELDS: dict[str, dict[str, Any]] = {
    "detectLocal.bridgeInterface": {"detectLocalMode": "BridgeInterface"},
    "detectLocal.interfaceNamePrefix": {"detectLocalMode": "InterfaceNamePrefix"},
    **{
        path: {"mode": path.partition(".")[0]}
        for path, option in FIELDS.items()
        if option.modes in (("ipvs",), ("nftables",))
    },
}
"""Other fields that must be set for a field to have an effect."""
BASELINE_VALUES: dict[str, Any] = {"detectLocal.bridgeInterface": "br9", "detectLocal.interfaceNamePrefix": "tap"}
"""Values to compare with, for fields that must be set."""
FIELDS_WITHOUT_WARNING = {"iptables.localhostNodePorts", "winkernel.enableDSR"}
"""Ignored fields whose example is what knft does anyway, or a default of kube-proxy."""

FLAG_EXAMPLES: dict[str, str] = {
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
ACTION_FLAGS = {
    "--manifests",
    "--once",
    "--config",
    "--write-config-to",
    "--cleanup",
    "--init-only",
    "--version",
    "--wait-for-lock",
    "--allow-node-mismatch",
}
"""Flags that select an action and do not change Settings; see tests/configuration/test_command.py."""


def example(path: str) -> Any:
    return FIELD_EXAMPLES.get(path, KIND_EXAMPLES.get(FIELDS[path].kind))


def load_field(path: str, value: Any) -> Settings:
    """Return the Settings of a file with a field, unless its value is None, and with the fields that it requires."""
    field = {} if value is None else {path: value}
    return load(text=config_with_paths({**REQUIRED_FIELDS.get(path, {}), **field}))


def effective_settings(settings: Settings) -> Settings:
    """Return the settings that change what a process does: all without the document and the warnings."""
    return Settings(
        **{name: getattr(settings, name) for name in settings.__struct_fields__ if name not in ("document", "warnings")}
    )


@pytest.mark.parametrize(
    "path", [path for path, option in FIELDS.items() if option.support is Support.SUPPORTED and path != "featureGates"]
)
def test_supported_field_changes_settings(path: str) -> None:
    assert effective_settings(load_field(path, BASELINE_VALUES.get(path))) != effective_settings(
        load_field(path, example(path))
    )


@pytest.mark.parametrize("path", [path for path, option in FIELDS.items() if option.support is Support.IGNORED])
def test_ignored_field_only_warns(path: str) -> None:
    settings = load_field(path, example(path))
    assert effective_settings(settings) == effective_settings(load(text=config_with_paths({})))
    warnings = [warning for warning in settings.warnings if f"KubeProxyConfiguration.{path}: " in warning]
    assert len(warnings) == (path not in FIELDS_WITHOUT_WARNING)
    assert all(warning.endswith(f"has no effect: {FIELDS[path].description}") for warning in warnings)


@pytest.mark.parametrize("path", [path for path, option in FIELDS.items() if option.support is Support.REJECTED])
def test_rejected_field_is_an_error(path: str) -> None:
    with pytest.raises(
        ConfigurationError, match=f"KubeProxyConfiguration.{path}: true is rejected: {FIELDS[path].description}"
    ):
        load_field(path, example(path))


@pytest.mark.parametrize("path", FIELDS)
def test_default_value_gives_no_warning(path: str) -> None:
    """kubeadm writes all defaults into its file."""
    given = FIELDS[path].default if path != "mode" else ""
    needed = {} if path.startswith("detectLocal.") else REQUIRED_FIELDS.get(path, {})
    settings = load(text=config_with_paths({**needed, path: given}))
    assert settings == load(text=config_with_paths(needed))
    warnings = [warning for warning in settings.warnings if f"KubeProxyConfiguration.{path}: " in warning]
    assert len(warnings) == (path == "nodePortAddresses")


class FlagEffect(NamedTuple):
    """The Settings without a flag and with it."""

    before: Settings
    after: Settings


def load_without_and_with(flag: str) -> FlagEffect:
    """Return the Settings without a flag and with it; both have the other flags that it requires."""
    option = FLAGS[flag]
    value = FLAG_EXAMPLES.get(flag, example(option.field) if option.field else KIND_EXAMPLES[option.kind])
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
    return FlagEffect(load(*needed, *other), load(*needed, *f"{name}{text}".split(" ")))


def flags_with_support(support: Support) -> list[str]:
    excluded = {*ACTION_FLAGS, "--feature-gates"}
    return [flag for flag, option in FLAGS.items() if option.support is support and flag not in excluded]


@pytest.mark.parametrize("flag", flags_with_support(Support.SUPPORTED))
def test_supported_flag_changes_settings(flag: str) -> None:
    before, after = load_without_and_with(flag)
    assert effective_settings(before) != effective_settings(after)


@pytest.mark.parametrize("flag", flags_with_support(Support.IGNORED))
def test_ignored_flag_only_warns(flag: str) -> None:
    before, after = load_without_and_with(flag)
    assert effective_settings(before) == effective_settings(after)
    assert [*after.warnings, *before.warnings] == [f"{flag}: {FLAGS[flag].description}", *2 * before.warnings]


@pytest.mark.parametrize("flag", flags_with_support(Support.REJECTED))
def test_rejected_flag_is_an_error(flag: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{flag}: it is rejected: {FLAGS[flag].description}$"):
        load_without_and_with(flag)


def test_fields_and_flags_are_unique_and_described() -> None:
    fields = [option.field for option in OPTIONS if option.field]
    flags = [flag for option in OPTIONS for flag in option.flags]
    assert (len(fields), len(flags)) == (len(FIELDS), len(FLAGS))
    assert all((option.field or option.flags) and option.description for option in OPTIONS)


def test_command_line_has_the_flags_of_the_table() -> None:
    names = {name for param in run.params if isinstance(param, GoOption) for name in param.opts}
    assert names == set(FLAGS)


def test_table_has_all_flags_and_fields_of_kube_proxy() -> None:
    """docs/behaviour/configuration.md#file and docs/behaviour/configuration.md#flags describe them."""
    flags = """
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
    assert {f"--{name}" for name in flags.split()} <= set(FLAGS)
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


def test_schema_has_the_fields_of_the_table() -> None:
    assert _paths(schema()) - {"apiVersion", "kind"} == set(FIELDS)


def test_schema_has_the_types_of_the_table() -> None:
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
    for path, option in FIELDS.items():
        node: Any = schema()
        for part in path.split("."):
            node = node["properties"][part]
        assert node["$ref"] == f"#/$defs/{others.get(path, types[option.kind])}", path


def test_document_has_current_tables() -> None:
    text = DOCUMENT.read_text()
    assert text == with_tables(text), "run python -m tests.configuration.document_tables"


def test_help_lists_supported_flags_only() -> None:
    text = CliRunner().invoke(cli, ["run", "--help"]).output
    for flag, option in FLAGS.items():
        assert (f" {flag} " in text.replace(",", " ")) is (option.support is Support.SUPPORTED), flag


def test_defaults_are_a_valid_configuration() -> None:
    assert (
        load(text=config_with_paths({path: get_field(default_document(), path) for path in FIELDS})).document
        == load().document
    )
    assert effective_settings(load(text=KUBEADM.read_text())) != effective_settings(load())


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("on", [True, False])
def test_known_gate_warns_or_is_rejected(gate: str, on: bool) -> None:  # noqa: FBT001
    known = GATES[gate]
    flag = f"--feature-gates={gate}={str(on).lower()}"
    if known.is_locked and not on:
        with pytest.raises(ConfigurationError, match=f"^--feature-gates: {gate} cannot be false: {known.description}$"):
            load(flag)
        return
    warnings = (
        ()
        if known.is_supported or on is (known.fixed_value or False)
        else (f"--feature-gates: {gate}={str(on).lower()} has no effect: {known.description}",)
    )
    settings = load(flag, PRIMARY_FLAG)
    assert (settings.warnings, settings.document["featureGates"]) == (warnings, {gate: on})


LOCALHOST_GATE_FLAG = f"--feature-gates={LOCALHOST_GATE}=true"


@pytest.mark.parametrize("on", [True, False])
def test_gate_of_localhost_nodeports_has_an_effect(*, on: bool) -> None:
    gate = f"--feature-gates={LOCALHOST_GATE}={str(on).lower()}"
    settings = load(gate, "--nodeport-addresses=primary,127.0.0.0/8,::1/128")
    assert settings.warnings == ()
    assert settings.config.localhost_nodeports is on
    assert settings.document["nodePortAddresses"] == ["primary", "127.0.0.0/8", "::1/128"]


def test_keyword_localhost_needs_the_gate() -> None:
    settings = load(LOCALHOST_GATE_FLAG, "--nodeport-addresses=primary,localhost")
    assert settings.warnings == ()
    assert settings.config.nodeport_addresses == ("primary", "127.0.0.0/8", "::1/128")
    assert settings.document["nodePortAddresses"] == ["primary", "localhost"]
    with pytest.raises(ConfigurationError, match="only with the feature gate"):
        load("--nodeport-addresses=primary,localhost")


def test_unknown_gate_is_rejected() -> None:
    with pytest.raises(KnftError, match=r"^--feature-gates: unknown feature gate Frobnicate$"):
        load("--feature-gates=Frobnicate=true,AllAlpha=true")
