"""Precedence of flags, file and defaults, for the fields of modes, the node's name and addresses.

See docs/behaviour/configuration.md#file and docs/behaviour/configuration.md#flags.
"""

import re
from typing import NamedTuple

import pytest

from knft.configuration.document import split_host_port, with_port
from knft.configuration.settings import ClientSettings, ConntrackSettings, LoggingSettings
from knft.errors import KnftError
from tests.support.kube_objects import parametrize_cases
from tests.support.loaded_settings import HOSTNAME, KUBEADM, PRIMARY_FLAG, config_text, config_with_fields, load


def test_kubeadm_file_gives_the_defaults() -> None:
    """Its zeros and nulls mean the defaults; only the unset nodePortAddresses give a warning."""
    settings = load("--hostname-override=node-1", text=KUBEADM.read_text())
    assert settings.config.node_name == "node-1"
    assert settings.config.cluster_cidrs == ("10.244.0.0/16",)
    assert (settings.config.min_sync_period, settings.config.sync_period) == (0.02, 30.0)
    assert (settings.config.masquerade_bit, settings.config.masquerade_all) == (14, False)
    assert settings.config.nodeport_addresses == ("primary",)
    assert settings.client == ClientSettings("/var/lib/kube-proxy/kubeconfig.conf", "", 5.0, 10)
    assert settings.conntrack == ConntrackSettings(32768, 131072, 86400.0, 3600.0, tcp_be_liberal=False)
    assert settings.logging == LoggingSettings("text", 0)
    assert (settings.healthz_bind_address, settings.metrics_bind_address) == ("0.0.0.0:10256", "127.0.0.1:10249")
    assert (settings.oom_score_adj, settings.profiling) == (-999, False)
    (warning,) = settings.warnings
    assert warning.startswith("config.conf: KubeProxyConfiguration.nodePortAddresses: not set")


def test_zero_applies_to_fields_that_are_pointers_in_go() -> None:
    text = config_with_fields(
        iptables__masqueradeBit=0, oomScoreAdj=0, conntrack__min=0, conntrack__maxPerCore=0,
        conntrack__tcpEstablishedTimeout="0s", conntrack__tcpCloseWaitTimeout="0s",
    )  # fmt: skip
    settings = load(text=text)
    assert settings.config.masquerade_bit == 0
    assert settings.oom_score_adj == 0
    assert settings.conntrack == ConntrackSettings(0, 0, 0.0, 0.0)


class Section(NamedTuple):
    """Fields of a file; expected min_sync_period, sync_period, masquerade_bit and masquerade_all."""

    fields: str
    expected: tuple[float, float, int, bool]


ALL = """
iptables: {minSyncPeriod: 2s, syncPeriod: 20s, masqueradeBit: 2, masqueradeAll: true}
ipvs: {minSyncPeriod: 3s, syncPeriod: 30s}
nftables: {minSyncPeriod: 4s, syncPeriod: 40s, masqueradeBit: 4, masqueradeAll: false}
"""
SECTIONS = {
    "no mode means mode iptables": Section(ALL, (2.0, 20.0, 2, True)),
    "iptables": Section(f"mode: iptables{ALL}", (2.0, 20.0, 2, True)),
    "ipvs uses the masquerade fields of iptables": Section(f"mode: ipvs{ALL}", (3.0, 30.0, 2, True)),
    "nftables": Section(f"mode: nftables{ALL}", (4.0, 40.0, 4, False)),
    "0 means the default": Section("iptables: {minSyncPeriod: 0s}", (0.02, 30.0, 14, False)),
    "0 means the default in mode nftables": Section(
        "mode: nftables\nnftables: {minSyncPeriod: 0}", (0.02, 30.0, 14, False)
    ),
    "0 means 0 in mode ipvs": Section("mode: ipvs\nipvs: {minSyncPeriod: 0s}", (0.0, 30.0, 14, False)),
    "a missing field means 0 in mode ipvs": Section("mode: ipvs", (0.0, 30.0, 14, False)),
    "an empty section": Section("iptables:\nnftables: null", (0.02, 30.0, 14, False)),
}


@parametrize_cases(SECTIONS)
def test_mode_selects_the_section(case: Section) -> None:
    found = load(text=config_text(case.fields).replace("minSyncPeriod: 0}", "minSyncPeriod: '0'}")).config
    assert (found.min_sync_period, found.sync_period, found.masquerade_bit, found.masquerade_all) == case.expected


def test_fields_of_another_mode_give_warnings() -> None:
    warnings = load(text=config_text(f"mode: nftables{ALL}")).warnings
    assert [warning.removeprefix("config.conf: KubeProxyConfiguration.") for warning in warnings] == [
        "iptables.masqueradeBit: 2 has no effect in mode nftables; nftables.masqueradeBit applies",
        "iptables.masqueradeAll: true has no effect in mode nftables; nftables.masqueradeAll applies",
        "iptables.syncPeriod: '20s' has no effect in mode nftables; nftables.syncPeriod applies",
        "iptables.minSyncPeriod: '2s' has no effect in mode nftables; nftables.minSyncPeriod applies",
        "ipvs.minSyncPeriod: '3s' has no effect in mode nftables; nftables.minSyncPeriod applies",
    ]


@pytest.mark.parametrize("mode", ["iptables", "ipvs"])
def test_modes_iptables_and_ipvs_give_warnings(mode: str) -> None:
    (first, second) = load(text=config_with_fields(mode=mode)).warnings
    used = "it takes only the sync periods and masquerade settings"
    assert f"KubeProxyConfiguration.mode: knft always uses nftables; {used} of mode {mode}" in first
    assert f"mode {mode} serves them on all local addresses" in second
    settings = load(text=config_with_fields(mode=mode, nodePortAddresses=["primary"]))
    assert settings.warnings == (first,)
    assert settings.document["mode"] == "nftables"


UNSET_WARNING = (
    "--nodeport-addresses: not set, so NodePorts are served on the node's primary addresses, "
    "as in mode nftables; mode {} serves them on all local addresses"
)


@pytest.mark.parametrize(
    ("flags", "mode"),
    [
        ((), "iptables"),
        (("--hostname-override=node-1", "--kubeconfig=/etc/kubeconfig"), "iptables"),
        (("--proxy-mode=iptables",), "iptables"),
        (("--proxy-mode=ipvs",), "ipvs"),
        (("--proxy-mode=nftables",), ""),
        ((PRIMARY_FLAG,), ""),
        (("--nodeport-addresses=0.0.0.0/0",), ""),
        (("--manifests=/srv", "--node=node-1"), ""),
        (("--cleanup",), ""),
    ],
)
def test_unset_nodeport_addresses_give_a_warning(flags: tuple[str, ...], mode: str) -> None:
    """In these modes kube-proxy serves NodePorts on all local addresses."""
    found = [warning for warning in load(*flags).warnings if "not set, so NodePorts" in warning]
    assert found == ([UNSET_WARNING.format(mode)] if mode else [])


class PeriodFlags(NamedTuple):
    """Flags; expected min_sync_period and sync_period; flags with a warning that they have no effect."""

    flags: str
    expected: tuple[float, float]
    ignored_flags: tuple[str, ...] = ()


IPTABLES_PERIODS = "--iptables-min-sync-period=2s --iptables-sync-period=20s"
IPVS_PERIODS = "--ipvs-min-sync-period=3s --ipvs-sync-period=33s"
PERIODS = {
    "no flags": PeriodFlags("", (0.02, 30.0)),
    "iptables flags without a mode": PeriodFlags(IPTABLES_PERIODS, (2.0, 20.0)),
    "iptables flags in mode iptables": PeriodFlags(f"{IPTABLES_PERIODS} --proxy-mode=iptables", (2.0, 20.0)),
    "iptables flags in mode nftables": PeriodFlags(f"{IPTABLES_PERIODS} --proxy-mode=nftables", (2.0, 20.0)),
    "iptables flags in mode ipvs": PeriodFlags(
        f"{IPTABLES_PERIODS} --proxy-mode=ipvs", (0.02, 30.0), ("--iptables-min-sync-period", "--iptables-sync-period")
    ),
    "ipvs flags in mode ipvs": PeriodFlags(f"{IPVS_PERIODS} --proxy-mode=ipvs", (3.0, 33.0)),
    "ipvs flags after the mode": PeriodFlags(f"--proxy-mode=ipvs {IPVS_PERIODS}", (3.0, 33.0)),
    "ipvs flags without a mode": PeriodFlags(
        IPVS_PERIODS, (0.02, 30.0), ("--ipvs-min-sync-period", "--ipvs-sync-period")
    ),
    "ipvs flags in mode nftables": PeriodFlags(
        f"{IPVS_PERIODS} --proxy-mode=nftables", (0.02, 30.0), ("--ipvs-min-sync-period", "--ipvs-sync-period")
    ),
    "mode ipvs without period flags": PeriodFlags("--proxy-mode=ipvs", (0.02, 30.0)),
    "a flag of 0 means 0": PeriodFlags("--iptables-min-sync-period=0", (0.0, 30.0)),
    "knft's own flags": PeriodFlags("--min-sync-period=5s --sync-period=50s", (5.0, 50.0)),
    "knft's own flags win over iptables flags": PeriodFlags(
        f"{IPTABLES_PERIODS} --min-sync-period=5s --sync-period=50s", (5.0, 50.0)
    ),
    "knft's own flags in mode ipvs": PeriodFlags("--proxy-mode=ipvs --min-sync-period=0", (0.0, 30.0)),
}


@parametrize_cases(PERIODS)
def test_period_flags_depend_on_the_mode(case: PeriodFlags) -> None:
    settings = load(*case.flags.split())
    assert (settings.config.min_sync_period, settings.config.sync_period) == case.expected
    ignored = {warning.partition(":")[0] for warning in settings.warnings if "has no effect in mode" in warning}
    assert ignored == set(case.ignored_flags)


@pytest.mark.parametrize("mode", ["", "iptables", "ipvs", "nftables"])
def test_masquerade_all_flag_applies_in_every_mode(mode: str) -> None:
    assert load("--masquerade-all", f"--proxy-mode={mode}").config.masquerade_all is True


def test_iptables_masquerade_bit_flag_gives_a_warning_in_mode_nftables() -> None:
    assert load("--iptables-masquerade-bit=3", "--proxy-mode=ipvs").config.masquerade_bit == 3
    settings = load("--iptables-masquerade-bit=3", "--proxy-mode=nftables")
    assert settings.config.masquerade_bit == 14
    assert settings.warnings == ("--iptables-masquerade-bit: it has no effect in mode nftables, as in kube-proxy",)


def test_file_wins_over_flags_and_they_give_warnings() -> None:
    flags = (
        "--masquerade-all=true", "--cluster-cidr=10.0.0.0/8", "--kubeconfig=/k", "--proxy-mode=nftables",
        "--ipvs-scheduler=rr", "--healthz-port=0", "--feature-gates=Frobnicate=true", "--bind-address=junk",
    )  # fmt: skip
    settings = load(*flags, text=config_with_fields(nodePortAddresses=["primary"]))
    assert settings.config.masquerade_all is False
    assert settings.config.cluster_cidrs == ()
    assert settings.client.kubeconfig == ""
    assert settings.healthz_bind_address == "0.0.0.0:10256"
    message = "ignored because --config is given, as in kube-proxy"
    assert sorted(settings.warnings) == sorted(f"{flag.partition('=')[0]}: {message}" for flag in flags)


def test_logging_flags_and_knfts_own_flags_win_over_file() -> None:
    text = config_with_fields(
        hostnameOverride="file-node", logging__verbosity=1, logging__format="json", nodePortAddresses=["primary"],
        iptables__syncPeriod="20s",
    )  # fmt: skip
    flags = ("--master=https://192.0.2.1", "-v=4", "--logging-format=text", "--node-ip=192.0.2.9", "--sync-period=25s",
             "--service-cidr=10.96.0.0/16", "--masquerade-bit=9")  # fmt: skip
    settings = load(*flags, "--hostname-override= Node-A ", text=text)
    assert settings.warnings == ()
    assert settings.client.server == "https://192.0.2.1"
    assert settings.logging == LoggingSettings("text", 4)
    found = settings.config
    assert (found.node_name, found.node_ips, found.service_cidrs) == ("node-a", ("192.0.2.9",), ("10.96.0.0/16",))
    assert (found.sync_period, found.masquerade_bit) == (25.0, 9)


def test_logging_flag_wins_over_file_if_it_is_given() -> None:
    text = config_with_fields(logging__verbosity=3, logging__format="json")
    assert load(text=text).logging == LoggingSettings("json", 3)
    assert load("--v", "0", text=text).logging == LoggingSettings("json", 0)


def test_vmodule_flag_comes_before_vmodule_of_the_file() -> None:
    text = config_with_fields(logging__vmodule=[{"filePattern": "b", "verbosity": 2}])
    found = load("--vmodule=a=1", text=text).document["logging"]["vmodule"]
    assert found == [{"filePattern": "a", "verbosity": 1}, {"filePattern": "b", "verbosity": 2}]


class NodeNameCase(NamedTuple):
    """Flags and the name in the file (None: no file); the expected name or error."""

    flags: tuple[str, ...]
    in_file: str | None
    name: str
    error: str = ""


EMPTY_NAME = "the name is empty; give the node's name, as in nodeName of EndpointSlices"
INVALID_NAME = "is not a valid node name: use letters, digits, - and ., at most 253"
NODE_NAMES = {
    "the hostname": NodeNameCase((), None, HOSTNAME.lower()),
    "the name in the file": NodeNameCase((), " File-Node ", "file-node"),
    "an empty name in the file counts as unset": NodeNameCase((), "", HOSTNAME.lower()),
    "a blank name in the file": NodeNameCase(
        (), "  ", "", f"config.conf: KubeProxyConfiguration.hostnameOverride: {EMPTY_NAME}"
    ),
    "the name of the flag": NodeNameCase(("--hostname-override=Node-A",), None, "node-a"),
    "the flag wins over the file": NodeNameCase(("--hostname-override= Node-A ",), "file-node", "node-a"),
    "an empty flag counts as unset": NodeNameCase(("--hostname-override=",), "file-node", "file-node"),
    "an invalid name": NodeNameCase(
        ("--hostname-override=node 1",), None, "", f"--hostname-override: 'node 1' {INVALID_NAME}"
    ),
    "not UTF-8": NodeNameCase(("--node=\udcff",), None, "", f"--node: '\\udcff' {INVALID_NAME}"),
    "a newline": NodeNameCase(("--node=node\n1",), None, "", f"--node: 'node\\n1' {INVALID_NAME}"),
    "too long": NodeNameCase(
        ("--node=" + "a" * 254,), None, "", f"--node: '{'a' * 60}'... (254 characters) {INVALID_NAME}"
    ),
    "a qualified name": NodeNameCase(("--node=Node-1.Example.org",), None, "node-1.example.org"),
    "an invalid name in the file": NodeNameCase(
        (), "node_1", "", f"config.conf: KubeProxyConfiguration.hostnameOverride: 'node_1' {INVALID_NAME}"
    ),
    "a blank flag": NodeNameCase(("--hostname-override= ",), "file-node", "", f"--hostname-override: {EMPTY_NAME}"),
    "--node wins over the file": NodeNameCase(("--node=Node-A",), "file-node", "node-a"),
    "an empty --node": NodeNameCase(("--node=",), None, "", f"--node: {EMPTY_NAME}"),
    "both flags with the same name": NodeNameCase(("--node=Node-A", "--hostname-override=node-a "), None, "node-a"),
    "both flags with different names": NodeNameCase(
        ("--node=node-a", "--hostname-override=node-b"),
        None,
        "",
        "--node: --node node-a and --hostname-override node-b differ; leave out one of them",
    ),
    "manifests without a name": NodeNameCase(
        ("--manifests=.",),
        None,
        "",
        "--node: it is required with --manifests; give the node's name, as in nodeName of EndpointSlices",
    ),
    "manifests and the name in the file": NodeNameCase(("--manifests=.",), "file-node", "file-node"),
}


@parametrize_cases(NODE_NAMES)
def test_node_name_comes_from_flags_file_or_hostname(case: NodeNameCase) -> None:
    text = None if case.in_file is None else config_with_fields(hostnameOverride=case.in_file)
    if case.error:
        with pytest.raises(KnftError, match=f"^{re.escape(case.error)}$"):
            load(*case.flags, text=text)
    else:
        settings = load(*case.flags, text=text)
        assert settings.config.node_name == case.name
        is_overridden = case.name != HOSTNAME.lower()
        assert (settings.document["hostnameOverride"].strip().lower() == case.name) is is_overridden


class BindAddressCase(NamedTuple):
    """Flags and fields (None: no file); the expected bind addresses of health and metrics."""

    flags: str
    fields: str | None
    expected: tuple[str, str]


BIND_ADDRESSES = {
    "the defaults": BindAddressCase("", None, ("0.0.0.0:10256", "127.0.0.1:10249")),
    "IPv6 in the file": BindAddressCase("", "bindAddress: '::'", ("[::]:10256", "[::1]:10249")),
    "--bind-address of IPv6 does not change the defaults": BindAddressCase(
        "--bind-address=::", None, ("0.0.0.0:10256", "127.0.0.1:10249")
    ),
    "ports are appended": BindAddressCase(
        "", "{healthzBindAddress: 192.0.2.1, metricsBindAddress: 'fd00::1'}", ("192.0.2.1:10256", "[fd00::1]:10249")
    ),
    "an empty field means the default": BindAddressCase(
        "", "{healthzBindAddress: '', metricsBindAddress: ''}", ("0.0.0.0:10256", "127.0.0.1:10249")
    ),
    "an empty flag disables": BindAddressCase("--healthz-bind-address= --metrics-bind-address=", None, ("", "")),
    "port 0 disables": BindAddressCase("--healthz-port=0 --metrics-port=0", None, ("", "")),
    "port 0 wins over the address": BindAddressCase(
        "--healthz-port=0 --healthz-bind-address=192.0.2.1:80", None, ("", "127.0.0.1:10249")
    ),
    "a port has no effect if the address has one": BindAddressCase(
        "--healthz-port=80", None, ("0.0.0.0:10256", "127.0.0.1:10249")
    ),
    "a port is appended": BindAddressCase(
        "--healthz-port=80 --healthz-bind-address=::1 --metrics-bind-address=192.0.2.1",
        None,
        ("[::1]:80", "192.0.2.1:10249"),
    ),
    "an empty flag, and a written file": BindAddressCase(
        "--healthz-bind-address= --metrics-bind-address= --write-config-to=x", None, ("", "")
    ),
    "port flags have no effect with a file": BindAddressCase(
        "--healthz-port=0", "{}", ("0.0.0.0:10256", "127.0.0.1:10249")
    ),
    "port flags have no effect on a written file": BindAddressCase(
        "--metrics-port=0 --write-config-to=x", None, ("0.0.0.0:10256", "127.0.0.1:10249")
    ),
}


@parametrize_cases(BIND_ADDRESSES)
def test_bind_addresses_of_health_and_metrics(case: BindAddressCase) -> None:
    text = None if case.fields is None else config_text() + case.fields.strip("{}").replace(", ", "\n")
    settings = load(*case.flags.split(), text=text)
    assert (settings.healthz_bind_address, settings.metrics_bind_address) == case.expected


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("192.0.2.1", "192.0.2.1:80"),
        ("192.0.2.1:90", "192.0.2.1:90"),
        ("::1", "[::1]:80"),
        ("[::1]:90", "[::1]:90"),
        ("[::1]", "[::1]"),
        ("node-1", "node-1"),
        ("node-1:90", "node-1:90"),
        ("", ""),
        ("192.0.2.1:", "192.0.2.1:"),
    ],
)
def test_port_is_appended_only_to_an_address_without_port(address: str, expected: str) -> None:
    assert with_port(address, 80) == expected


@pytest.mark.parametrize(
    "text", ["", "192.0.2.1", "::1", "[::1]", "[::1]80", "[[::1]:80", "a]:80", "[::1]:80]", "::1:8:0"]
)
def test_split_host_port_returns_none_if_host_or_port_is_missing(text: str) -> None:
    assert split_host_port(text) is None


class NodeIpCase(NamedTuple):
    """Flags, and the expected node IPs."""

    flags: str
    expected: tuple[str, ...]


NODE_IPS = {
    "wildcard": NodeIpCase("", ()),
    "wildcard of IPv6": NodeIpCase("--bind-address=::", ()),
    "IPv4": NodeIpCase("--bind-address=192.0.2.7", ("192.0.2.7",)),
    "IPv6": NodeIpCase("--bind-address=FD00::7", ("fd00::7",)),
    "with --node-ip of the other family": NodeIpCase(
        "--bind-address=fd00::7 --node-ip=192.0.2.1", ("192.0.2.1", "fd00::7")
    ),
    "--node-ip wins": NodeIpCase("--bind-address=192.0.2.7 --node-ip=192.0.2.1,fd00::1", ("192.0.2.1", "fd00::1")),
}


@parametrize_cases(NODE_IPS)
def test_bind_address_is_a_node_ip(case: NodeIpCase) -> None:
    assert load(*case.flags.split()).config.node_ips == case.expected


def test_cluster_cidr_applies_only_in_mode_cluster_cidr() -> None:
    text = config_with_fields(clusterCIDR="10.244.0.0/16, fd00:10:244::/48")
    assert load(text=text).config.cluster_cidrs == ("10.244.0.0/16", "fd00:10:244::/48")
    assert load(text=config_with_fields(clusterCIDR="junk", detectLocalMode="NodeCIDR")).config.cluster_cidrs == ()


def test_interface_name_prefix_becomes_a_wildcard() -> None:
    fields = {"detectLocalMode": "InterfaceNamePrefix", "detectLocal__interfaceNamePrefix": "veth"}
    assert load(text=config_with_fields(**fields)).config.pod_interface == "veth*"
