"""Converts a valid document to Settings: selects the section that applies, and finds warnings.

See docs/behaviour/configuration.md#file.
"""

from collections.abc import Iterator
from copy import deepcopy
from typing import NamedTuple

from knft.config import ALL, PRIMARY, Config, parse_cluster_cidrs, parse_detect_local, parse_nodeport_addresses
from knft.configuration.checks import FieldNames, has_localhost_nodeports
from knft.configuration.document import Document, get_field, set_field
from knft.configuration.gates import GATES
from knft.configuration.options import SECTION_BY_MODE, Support
from knft.configuration.settings import ClientSettings, ConntrackSettings, LoggingSettings, Settings
from knft.configuration.table import FIELDS
from knft.durations import parse_duration
from knft.families import Family
from knft.model import addresses
from knft.source.formatting import describe_type, format_value

_PER_MODE_FIELDS = ("masqueradeBit", "masqueradeAll", "syncPeriod", "minSyncPeriod")
"""Fields that each mode of kube-proxy has in its own section."""
_PERIOD_FOR_ZERO = "1ns"
"""Written for a minSyncPeriod of 0, because kube-proxy replaces 0 with the default."""
_NO_DELAY_BELOW = 1000
"""Intervals below this number of nanoseconds count as none."""
_UNSPECIFIED = ("0.0.0.0", "::")  # noqa: S104 - compared with bind addresses


class FlagOnlySettings(NamedTuple):
    """Settings that only flags have."""

    node_name: str
    node_ips: tuple[str, ...] = ()
    service_cidrs: tuple[str, ...] = ()
    server: str = ""
    sends_credentials_without_tls: bool = False
    max_sync_period: float = 3600.0
    sync_burst: int = 1
    service_counters: bool = False
    drop_invalid_packets: bool = False


def section_path(mode: str, field: str) -> str:
    """Return the path of one of _PER_MODE_FIELDS in the section of a mode."""
    section = SECTION_BY_MODE[mode]
    return f"iptables.{field}" if section == "ipvs" and field.startswith("masquerade") else f"{section}.{field}"


def effective_document(document: Document) -> Document:
    """Return the configuration in mode nftables, with the values that apply in that section.

    Loading the result gives the same Settings.
    """
    result = deepcopy(document)
    mode = document["mode"]
    values = {field: get_field(document, section_path(mode, field)) for field in _PER_MODE_FIELDS}
    for path, option in FIELDS.items():
        if option.modes and path.rpartition(".")[2] in _PER_MODE_FIELDS:
            set_field(result, path, option.default)
    for field, value in values.items():
        no_pause = field == "minSyncPeriod" and (parse_duration(value) or 0) < _NO_DELAY_BELOW
        set_field(result, f"nftables.{field}", _PERIOD_FOR_ZERO if no_pause else value)
    result["mode"] = "nftables"
    result["nodePortAddresses"] = document["nodePortAddresses"] or ["primary"]
    return result


def make_settings(document: Document, flag_only: FlagOnlySettings, warnings: tuple[str, ...]) -> Settings:
    """Return the Settings of a valid effective document."""
    client, logging, conntrack = document["clientConnection"], document["logging"], document["conntrack"]
    _, bind_address = addresses.parse_address(document["bindAddress"]) or (Family.IPV4, "")
    return Settings(
        config=_config(document, flag_only, bind_address),
        client=ClientSettings(
            client["kubeconfig"],
            flag_only.server,
            client["qps"],
            client["burst"],
            flag_only.sends_credentials_without_tls,
        ),
        logging=LoggingSettings(logging["format"], logging["verbosity"]),
        conntrack=ConntrackSettings(
            max_per_core=conntrack["maxPerCore"],
            minimum=conntrack["min"],
            tcp_established_timeout=_seconds(conntrack["tcpEstablishedTimeout"]),
            tcp_close_wait_timeout=_seconds(conntrack["tcpCloseWaitTimeout"]),
            tcp_be_liberal=conntrack["tcpBeLiberal"],
            udp_timeout=_seconds(conntrack["udpTimeout"]),
            udp_stream_timeout=_seconds(conntrack["udpStreamTimeout"]),
        ),
        bind_address=bind_address,
        healthz_bind_address=document["healthzBindAddress"],
        metrics_bind_address=document["metricsBindAddress"],
        bind_address_hard_fail=document["bindAddressHardFail"],
        profiling=document["enableProfiling"],
        oom_score_adj=document["oomScoreAdj"],
        document=document,
        warnings=warnings,
    )


def _config(document: Document, flag_only: FlagOnlySettings, bind_address: str) -> Config:
    rules, pods, mode = document["nftables"], document["detectLocal"], document["detectLocalMode"]
    ips = flag_only.node_ips
    # The bind address is the node's address in its family; the other family's comes from the Node object.
    if bind_address not in _UNSPECIFIED and all((":" in ip) is not (":" in bind_address) for ip in ips):
        ips = (*ips, bind_address)
    return Config(
        node_name=flag_only.node_name,
        node_ips=ips,
        detect_local_mode=mode,
        pod_interface=parse_detect_local(mode, pods["bridgeInterface"], pods["interfaceNamePrefix"]),
        # Other modes do not use cluster CIDRs, and kube-proxy does not validate them there.
        cluster_cidrs=parse_cluster_cidrs("", (document["clusterCIDR"],)) if mode == "ClusterCIDR" else (),
        service_cidrs=flag_only.service_cidrs,
        nodeport_addresses=_nodeport_addresses(document),
        masquerade_all=rules["masqueradeAll"],
        masquerade_bit=rules["masqueradeBit"],
        min_sync_period=_seconds(rules["minSyncPeriod"]),
        sync_period=_seconds(rules["syncPeriod"]),
        max_sync_period=flag_only.max_sync_period,
        sync_burst=flag_only.sync_burst,
        service_counters=flag_only.service_counters,
        drop_invalid_packets=flag_only.drop_invalid_packets,
        localhost_nodeports=has_localhost_nodeports(document),
    )


def _nodeport_addresses(document: Document) -> tuple[str, ...]:
    texts = (*document["nodePortAddresses"],)
    return parse_nodeport_addresses("", texts, localhost_nodeports=has_localhost_nodeports(document))


def _seconds(duration: str) -> float:
    found = parse_duration(duration) or 0
    return 0.0 if found < _NO_DELAY_BELOW else found / 1e9


def find_warnings(
    document: Document, field_name: FieldNames, already_reported: frozenset[str], *, may_come_from_kube_proxy: bool
) -> Iterator[str]:
    """Yield the warnings about a valid document, except for fields in ``already_reported``.

    ``may_come_from_kube_proxy`` is set if the configuration may have been written for kube-proxy, whose default
    mode is iptables.
    """
    mode = document["mode"]
    if mode in ("iptables", "ipvs"):
        yield (
            f"{field_name('mode')}: knft always uses nftables; it takes only the sync periods and masquerade "
            f"settings of mode {mode}"
        )
    if not document["nodePortAddresses"] and (mode in ("iptables", "ipvs") or (may_come_from_kube_proxy and not mode)):
        yield (
            f"{field_name('nodePortAddresses')}: not set, so NodePorts are served on the node's primary addresses, "
            f"as in mode nftables; mode {mode or 'iptables'} serves them on all local addresses"
        )
    yield from _family_without_cidr(document, field_name)
    yield from (
        f"{field_name(path)}: {words}" for path, words in _ignored_fields(document) if path not in already_reported
    )
    for gate, on in document["featureGates"].items():
        known = GATES[gate]
        if not known.is_supported and on is not (known.fixed_value or False):
            yield f"{field_name('featureGates')}: {gate}={_display(on)} has no effect: {known.description}"


def _family_without_cidr(document: Document, field_name: FieldNames) -> Iterator[str]:
    """Warn if there are CIDRs of one family only: the other family then accepts NodePorts everywhere."""
    words = _nodeport_addresses(document)
    families = [family for family in Family if not addresses.networks_of_family(words, family)]
    if len(families) == 1 and PRIMARY not in words and ALL not in words:
        yield (
            f"{field_name('nodePortAddresses')}: no CIDR of {families[0].value} is set, so its NodePorts are served on "
            "all local addresses, as in kube-proxy"
        )


def _ignored_fields(document: Document) -> Iterator[tuple[str, str]]:
    mode = document["mode"]
    for path, option in FIELDS.items():
        value = get_field(document, path)
        if value == option.default or value in option.values_without_warning:
            continue
        if option.support is Support.IGNORED:
            yield path, f"{_display(value)} has no effect: {option.description}"
        elif option.modes and not _is_in_force(path, mode):
            effective_path = section_path(mode, path.rpartition(".")[2])
            yield path, f"{_display(value)} has no effect in mode {mode or 'iptables'}; {effective_path} applies"


def _is_in_force(path: str, mode: str) -> bool:
    return path == section_path(mode, path.rpartition(".")[2])


def _display(value: object) -> str:
    return describe_type(value) if isinstance(value, dict | list) else format_value(value)
