"""Who wins: flags or the file, which mode's section, which name, which port (behaviour.md I.1, I.3, K.9)."""

import re
from typing import NamedTuple

import pytest

from knft.configuration.document import split_host_port, with_port
from knft.configuration.settings import ClientSettings, ConntrackSettings, LoggingSettings
from knft.errors import KnftError
from tests.configuration.loading import HOST, KUBEADM, PRIMARY, config, load, of_fields
from tests.support.kube_objects import parametrize_rows


def test_what_kubeadm_writes_is_kube_proxys_defaults_but_for_the_mode() -> None:
    """All its zeros and nulls mean the default; the cluster's own values are taken."""
    settings = load("--hostname-override=node-1", text=KUBEADM.read_text())
    assert settings.config.node_name == "node-1"
    assert settings.config.cluster_cidrs == ("10.244.0.0/16",)
    assert (settings.config.min_sync_period, settings.config.sync_period) == (1.0, 30.0)
    assert (settings.config.masquerade_bit, settings.config.masquerade_all) == (14, False)
    assert settings.config.nodeport_addresses == ("primary",)
    assert settings.client == ClientSettings("/var/lib/kube-proxy/kubeconfig.conf", "", 5.0, 10)
    assert settings.conntrack == ConntrackSettings(32768, 131072, 86400.0, 3600.0, tcp_be_liberal=False)
    assert settings.logging == LoggingSettings("text", 0)
    assert (settings.healthz_bind_address, settings.metrics_bind_address) == ("0.0.0.0:10256", "127.0.0.1:10249")
    assert (settings.oom_score_adj, settings.profiling) == (-999, False)
    (warning,) = settings.warnings
    assert warning.startswith("config.conf: KubeProxyConfiguration.nodePortAddresses: not set")


def test_zeros_that_go_can_tell_from_nothing_are_zeros() -> None:
    text = of_fields(
        iptables__masqueradeBit=0, oomScoreAdj=0, conntrack__min=0, conntrack__maxPerCore=0,
        conntrack__tcpEstablishedTimeout="0s", conntrack__tcpCloseWaitTimeout="0s",
    )  # fmt: skip
    settings = load(text=text)
    assert settings.config.masquerade_bit == 0
    assert settings.oom_score_adj == 0
    assert settings.conntrack == ConntrackSettings(0, 0, 0.0, 0.0)


class Section(NamedTuple):
    """The fields of a file; the shortest pause, the longest, the bit, whether all is masqueraded."""

    fields: str
    expected: tuple[float, float, int, bool]


ALL = """
iptables: {minSyncPeriod: 2s, syncPeriod: 20s, masqueradeBit: 2, masqueradeAll: true}
ipvs: {minSyncPeriod: 3s, syncPeriod: 30s}
nftables: {minSyncPeriod: 4s, syncPeriod: 40s, masqueradeBit: 4, masqueradeAll: false}
"""
SECTIONS = {
    "no mode is mode iptables": Section(ALL, (2.0, 20.0, 2, True)),
    "iptables": Section(f"mode: iptables{ALL}", (2.0, 20.0, 2, True)),
    "ipvs has the marks of iptables": Section(f"mode: ipvs{ALL}", (3.0, 30.0, 2, True)),
    "nftables": Section(f"mode: nftables{ALL}", (4.0, 40.0, 4, False)),
    "0 is 1 s": Section("iptables: {minSyncPeriod: 0s}", (1.0, 30.0, 14, False)),
    "0 is 1 s in mode nftables": Section("mode: nftables\nnftables: {minSyncPeriod: 0}", (1.0, 30.0, 14, False)),
    "0 is 0 in mode ipvs": Section("mode: ipvs\nipvs: {minSyncPeriod: 0s}", (0.0, 30.0, 14, False)),
    "nothing is 0 in mode ipvs": Section("mode: ipvs", (0.0, 30.0, 14, False)),
    "an empty section": Section("iptables:\nnftables: null", (1.0, 30.0, 14, False)),
}


@parametrize_rows(SECTIONS)
def test_mode_selects_the_section(row: Section) -> None:
    found = load(text=config(row.fields).replace("minSyncPeriod: 0}", "minSyncPeriod: '0'}")).config
    assert (found.min_sync_period, found.sync_period, found.masquerade_bit, found.masquerade_all) == row.expected


def test_what_another_mode_has_is_told() -> None:
    warnings = load(text=config(f"mode: nftables{ALL}")).warnings
    assert [warning.removeprefix("config.conf: KubeProxyConfiguration.") for warning in warnings] == [
        "iptables.masqueradeBit: 2 has no effect in mode nftables; nftables.masqueradeBit applies",
        "iptables.masqueradeAll: true has no effect in mode nftables; nftables.masqueradeAll applies",
        "iptables.syncPeriod: '20s' has no effect in mode nftables; nftables.syncPeriod applies",
        "iptables.minSyncPeriod: '2s' has no effect in mode nftables; nftables.minSyncPeriod applies",
        "ipvs.minSyncPeriod: '3s' has no effect in mode nftables; nftables.minSyncPeriod applies",
    ]


@pytest.mark.parametrize("mode", ["iptables", "ipvs"])
def test_other_mode_gives_a_warning(mode: str) -> None:
    (first, second) = load(text=of_fields(mode=mode)).warnings
    assert f"KubeProxyConfiguration.mode: knft always uses nftables; from mode {mode} it uses" in first
    assert f"mode {mode} serves them on all local addresses" in second
    settings = load(text=of_fields(mode=mode, nodePortAddresses=["primary"]))
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
        ((PRIMARY,), ""),
        (("--nodeport-addresses=0.0.0.0/0",), ""),
        (("--manifests=/srv", "--node=node-1"), ""),
        (("--cleanup",), ""),
    ],
)
def test_unset_nodeport_addresses_give_a_warning(flags: tuple[str, ...], mode: str) -> None:
    """Its NodePorts would answer everywhere, with a file or without one."""
    told = [warning for warning in load(*flags).warnings if "not set, so NodePorts" in warning]
    assert told == ([UNSET_WARNING.format(mode)] if mode else [])


class OfFlags(NamedTuple):
    """Flags, the shortest pause and the longest; what is warned of."""

    flags: str
    expected: tuple[float, float]
    warned: tuple[str, ...] = ()


IPTABLES_PERIODS = "--iptables-min-sync-period=2s --iptables-sync-period=20s"
IPVS_PERIODS = "--ipvs-min-sync-period=3s --ipvs-sync-period=33s"
PERIODS = {
    "nothing": OfFlags("", (1.0, 30.0)),
    "iptables' without a mode": OfFlags(IPTABLES_PERIODS, (2.0, 20.0)),
    "iptables'": OfFlags(f"{IPTABLES_PERIODS} --proxy-mode=iptables", (2.0, 20.0)),
    "iptables' in mode nftables": OfFlags(f"{IPTABLES_PERIODS} --proxy-mode=nftables", (2.0, 20.0)),
    "iptables' in mode ipvs": OfFlags(
        f"{IPTABLES_PERIODS} --proxy-mode=ipvs", (1.0, 30.0), ("--iptables-min-sync-period", "--iptables-sync-period")
    ),
    "ipvs'": OfFlags(f"{IPVS_PERIODS} --proxy-mode=ipvs", (3.0, 33.0)),
    "ipvs' before its mode": OfFlags(f"--proxy-mode=ipvs {IPVS_PERIODS}", (3.0, 33.0)),
    "ipvs' without a mode": OfFlags(IPVS_PERIODS, (1.0, 30.0), ("--ipvs-min-sync-period", "--ipvs-sync-period")),
    "ipvs' in mode nftables": OfFlags(
        f"{IPVS_PERIODS} --proxy-mode=nftables", (1.0, 30.0), ("--ipvs-min-sync-period", "--ipvs-sync-period")
    ),
    "mode ipvs alone begins with iptables' second": OfFlags("--proxy-mode=ipvs", (1.0, 30.0)),
    "0 as a flag is 0": OfFlags("--iptables-min-sync-period=0", (0.0, 30.0)),
    "knft's own": OfFlags("--min-sync-period=5s --sync-period=50s", (5.0, 50.0)),
    "knft's own win": OfFlags(f"{IPTABLES_PERIODS} --min-sync-period=5s --sync-period=50s", (5.0, 50.0)),
    "knft's own in mode ipvs": OfFlags("--proxy-mode=ipvs --min-sync-period=0", (0.0, 30.0)),
}


@parametrize_rows(PERIODS)
def test_flags_of_periods_depend_on_the_mode(row: OfFlags) -> None:
    settings = load(*row.flags.split())
    assert (settings.config.min_sync_period, settings.config.sync_period) == row.expected
    told = {warning.partition(":")[0] for warning in settings.warnings if "has no effect in mode" in warning}
    assert told == set(row.warned)


@pytest.mark.parametrize("mode", ["", "iptables", "ipvs", "nftables"])
def test_masquerading_all_is_a_flag_of_every_mode(mode: str) -> None:
    assert load("--masquerade-all", f"--proxy-mode={mode}").config.masquerade_all is True


def test_the_bit_of_iptables_is_none_in_mode_nftables() -> None:
    assert load("--iptables-masquerade-bit=3", "--proxy-mode=ipvs").config.masquerade_bit == 3
    settings = load("--iptables-masquerade-bit=3", "--proxy-mode=nftables")
    assert settings.config.masquerade_bit == 14
    assert settings.warnings == ("--iptables-masquerade-bit: it has no effect in mode nftables, as in kube-proxy",)


def test_a_file_puts_flags_out_of_force_and_that_is_told() -> None:
    flags = (
        "--masquerade-all=true", "--cluster-cidr=10.0.0.0/8", "--kubeconfig=/k", "--proxy-mode=nftables",
        "--ipvs-scheduler=rr", "--healthz-port=0", "--feature-gates=Frobnicate=true", "--bind-address=junk",
    )  # fmt: skip
    settings = load(*flags, text=of_fields(nodePortAddresses=["primary"]))
    assert settings.config.masquerade_all is False
    assert settings.config.cluster_cidrs == ()
    assert settings.client.kubeconfig == ""
    assert settings.healthz_bind_address == "0.0.0.0:10256"
    said = "ignored because --config is given, as in kube-proxy"
    assert sorted(settings.warnings) == sorted(f"{flag.partition('=')[0]}: {said}" for flag in flags)


def test_what_counts_beside_a_file() -> None:
    text = of_fields(
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


def test_flags_of_logging_win_only_where_they_are_given() -> None:
    text = of_fields(logging__verbosity=3, logging__format="json")
    assert load(text=text).logging == LoggingSettings("json", 3)
    assert load("--v", "0", text=text).logging == LoggingSettings("json", 0)


def test_levels_of_files_are_joined_the_flags_first() -> None:
    text = of_fields(logging__vmodule=[{"filePattern": "b", "verbosity": 2}])
    found = load("--vmodule=a=1", text=text).document["logging"]["vmodule"]
    assert found == [{"filePattern": "a", "verbosity": 1}, {"filePattern": "b", "verbosity": 2}]


class Named(NamedTuple):
    """Flags, the name in the file, and what comes out: a name, or what is said."""

    flags: tuple[str, ...]
    in_file: str | None
    name: str
    error: str = ""


EMPTY = "the name is empty; give the node's name, as in nodeName of EndpointSlices"
IMPOSSIBLE = "is not a valid node name: use letters, digits, - and ., at most 253"
NAMES = {
    "the host's": Named((), None, HOST.lower()),
    "the file's": Named((), " File-Node ", "file-node"),
    "an empty one in the file is none": Named((), "", HOST.lower()),
    "a blank one in the file": Named((), "  ", "", f"config.conf: KubeProxyConfiguration.hostnameOverride: {EMPTY}"),
    "the flag": Named(("--hostname-override=Node-A",), None, "node-a"),
    "the flag wins": Named(("--hostname-override= Node-A ",), "file-node", "node-a"),
    "an empty flag is none": Named(("--hostname-override=",), "file-node", "file-node"),
    "none that a Node can have": Named(
        ("--hostname-override=node 1",), None, "", f"--hostname-override: 'node 1' {IMPOSSIBLE}"
    ),
    "no text": Named(("--node=\udcff",), None, "", f"--node: '\\udcff' {IMPOSSIBLE}"),
    "a line's end": Named(("--node=node\n1",), None, "", f"--node: 'node\\n1' {IMPOSSIBLE}"),
    "too long": Named(("--node=" + "a" * 254,), None, "", f"--node: '{'a' * 60}'... (254 characters) {IMPOSSIBLE}"),
    "a full name": Named(("--node=Node-1.Example.org",), None, "node-1.example.org"),
    "none that a Node can have, in the file": Named(
        (), "node_1", "", f"config.conf: KubeProxyConfiguration.hostnameOverride: 'node_1' {IMPOSSIBLE}"
    ),
    "a blank flag": Named(("--hostname-override= ",), "file-node", "", f"--hostname-override: {EMPTY}"),
    "knft's own": Named(("--node=Node-A",), "file-node", "node-a"),
    "knft's own, empty": Named(("--node=",), None, "", f"--node: {EMPTY}"),
    "both, alike": Named(("--node=Node-A", "--hostname-override=node-a "), None, "node-a"),
    "both, otherwise": Named(
        ("--node=node-a", "--hostname-override=node-b"), None, "",
        "--node: --node node-a and --hostname-override node-b differ; leave out one of them",
    ),
    "manifests need one": Named(
        ("--manifests=.",), None, "",
        "--node: it is required with --manifests; give the node's name, as in nodeName of EndpointSlices",
    ),
    "manifests, and the file's": Named(("--manifests=.",), "file-node", "file-node"),
}  # fmt: skip


@parametrize_rows(NAMES)
def test_the_name_of_the_node(row: Named) -> None:
    text = None if row.in_file is None else of_fields(hostnameOverride=row.in_file)
    if row.error:
        with pytest.raises(KnftError, match=f"^{re.escape(row.error)}$"):
            load(*row.flags, text=text)
    else:
        settings = load(*row.flags, text=text)
        assert settings.config.node_name == row.name
        overridden = row.name != HOST.lower()
        assert (settings.document["hostnameOverride"].strip().lower() == row.name) is overridden


class Served(NamedTuple):
    """Flags or fields, and where health and metrics are served."""

    flags: str
    fields: str | None
    expected: tuple[str, str]


SERVED = {
    "the defaults": Served("", None, ("0.0.0.0:10256", "127.0.0.1:10249")),
    "IPv6 in the file": Served("", "bindAddress: '::'", ("[::]:10256", "[::1]:10249")),
    "IPv6 as a flag comes too late": Served("--bind-address=::", None, ("0.0.0.0:10256", "127.0.0.1:10249")),
    "ports are appended": Served(
        "", "{healthzBindAddress: 192.0.2.1, metricsBindAddress: 'fd00::1'}", ("192.0.2.1:10256", "[fd00::1]:10249")
    ),
    "empty in the file is the default": Served(
        "", "{healthzBindAddress: '', metricsBindAddress: ''}", ("0.0.0.0:10256", "127.0.0.1:10249")
    ),
    "empty as a flag is nowhere": Served("--healthz-bind-address= --metrics-bind-address=", None, ("", "")),
    "port 0 is nowhere": Served("--healthz-port=0 --metrics-port=0", None, ("", "")),
    "port 0, whatever the address": Served("--healthz-port=0 --healthz-bind-address=192.0.2.1:80", None,
                                           ("", "127.0.0.1:10249")),
    "a port has no effect where there is one": Served("--healthz-port=80", None, ("0.0.0.0:10256", "127.0.0.1:10249")),
    "a port is appended": Served("--healthz-port=80 --healthz-bind-address=::1 --metrics-bind-address=192.0.2.1", None,
                                 ("[::1]:80", "192.0.2.1:10249")),
    "empty as a flag, and written": Served("--healthz-bind-address= --metrics-bind-address= --write-config-to=x", None,
                                           ("", "")),
    "ports mean nothing beside a file": Served("--healthz-port=0", "{}", ("0.0.0.0:10256", "127.0.0.1:10249")),
    "ports mean nothing to what is written": Served("--metrics-port=0 --write-config-to=x", None,
                                                    ("0.0.0.0:10256", "127.0.0.1:10249")),
}  # fmt: skip


@parametrize_rows(SERVED)
def test_where_health_and_metrics_are_served(row: Served) -> None:
    text = None if row.fields is None else config() + row.fields.strip("{}").replace(", ", "\n")
    settings = load(*row.flags.split(), text=text)
    assert (settings.healthz_bind_address, settings.metrics_bind_address) == row.expected


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
def test_a_port_is_appended_to_a_bare_address_alone(address: str, expected: str) -> None:
    assert with_port(address, 80) == expected


@pytest.mark.parametrize(
    "text", ["", "192.0.2.1", "::1", "[::1]", "[::1]80", "[[::1]:80", "a]:80", "[::1]:80]", "::1:8:0"]
)
def test_what_has_no_host_and_port(text: str) -> None:
    assert split_host_port(text) is None


class Bound(NamedTuple):
    """Flags, and the node's addresses that follow; those of the Node object come after them."""

    flags: str
    expected: tuple[str, ...]


BOUND = {
    "wildcard": Bound("", ()),
    "wildcard of IPv6": Bound("--bind-address=::", ()),
    "IPv4": Bound("--bind-address=192.0.2.7", ("192.0.2.7",)),
    "IPv6": Bound("--bind-address=FD00::7", ("fd00::7",)),
    "beside the other family": Bound("--bind-address=fd00::7 --node-ip=192.0.2.1", ("192.0.2.1", "fd00::7")),
    "knft's own wins": Bound("--bind-address=192.0.2.7 --node-ip=192.0.2.1,fd00::1", ("192.0.2.1", "fd00::1")),
}


@parametrize_rows(BOUND)
def test_an_address_to_bind_to_is_the_nodes(row: Bound) -> None:
    assert load(*row.flags.split()).config.node_ips == row.expected


def test_ranges_of_pods_count_in_their_mode_alone() -> None:
    text = of_fields(clusterCIDR="10.244.0.0/16, fd00:10:244::/48")
    assert load(text=text).config.cluster_cidrs == ("10.244.0.0/16", "fd00:10:244::/48")
    assert load(text=of_fields(clusterCIDR="junk", detectLocalMode="NodeCIDR")).config.cluster_cidrs == ()


def test_a_prefix_of_interfaces() -> None:
    fields = {"detectLocalMode": "InterfaceNamePrefix", "detectLocal__interfaceNamePrefix": "veth"}
    assert load(text=of_fields(**fields)).config.pod_interface == "veth*"
