"""From a document that is right to Settings (I.1): which section counts, what is told, what is written down again."""

from collections.abc import Iterator
from copy import deepcopy
from typing import NamedTuple

from knft.config import ALL, PRIMARY, Config, parse_cluster_cidrs, parse_detect_local, parse_nodeport_addresses
from knft.configuration import durations
from knft.configuration.checks import Names
from knft.configuration.document import Document, get, put
from knft.configuration.gates import GATES
from knft.configuration.rows import NAMES_OF_SECTIONS, Verdict
from knft.configuration.settings import ClientSettings, ConntrackSettings, LoggingSettings, Settings
from knft.configuration.table import FIELDS
from knft.model import addresses
from knft.model.names import Family
from knft.source.words import shown, sort_of

_MOVED = ("masqueradeBit", "masqueradeAll", "syncPeriod", "minSyncPeriod")
"""What each mode has in a section of its own, and knft in one."""
_SHORTEST = "1ns"
"""No pause at all, as a file can say it: 0 is taken for nothing there."""
_NO_PAUSE = 1000
"""Fewer nanoseconds are no pause."""
_UNSPECIFIED = ("0.0.0.0", "::")  # noqa: S104 - what a bind address is compared with


class Beside(NamedTuple):
    """What no file says."""

    node_name: str
    node_ips: tuple[str, ...] = ()
    service_cidrs: tuple[str, ...] = ()
    server: str = ""


def section_of(mode: str, field: str) -> str:
    """Return the path that ``field``, one of those every mode has, has in that mode's section."""
    section = NAMES_OF_SECTIONS[mode]
    return f"iptables.{field}" if section == "ipvs" and field.startswith("masquerade") else f"{section}.{field}"


def effective(document: Document) -> Document:
    """Return the same configuration as knft follows it: in mode nftables, its values in that section.

    Read again, it gives the same Settings.
    """
    result = deepcopy(document)
    mode = document["mode"]
    values = {field: get(document, section_of(mode, field)) for field in _MOVED}
    for path, row in FIELDS.items():
        if row.modes and path.rpartition(".")[2] in _MOVED:
            put(result, path, row.default)
    for field, value in values.items():
        no_pause = field == "minSyncPeriod" and (durations.parse(value) or 0) < _NO_PAUSE
        put(result, f"nftables.{field}", _SHORTEST if no_pause else value)
    result["mode"] = "nftables"
    result["nodePortAddresses"] = document["nodePortAddresses"] or ["primary"]
    return result


def settings(document: Document, beside: Beside, warnings: tuple[str, ...]) -> Settings:
    """Return the Settings that an effective document means; there is no problem in it."""
    client, logging, conntrack = document["clientConnection"], document["logging"], document["conntrack"]
    _, bind_address = addresses.parse_address(document["bindAddress"]) or (Family.IPV4, "")
    return Settings(
        config=_config(document, beside, bind_address),
        client=ClientSettings(client["kubeconfig"], beside.server, client["qps"], client["burst"]),
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
        feature_gates=document["featureGates"],
        document=document,
        warnings=warnings,
    )


def _config(document: Document, beside: Beside, bind_address: str) -> Config:
    rules, pods, mode = document["nftables"], document["detectLocal"], document["detectLocalMode"]
    ips = beside.node_ips
    # It is the node's address of its family; that of the other family comes from the Node object (I.5).
    if bind_address not in _UNSPECIFIED and all((":" in ip) is not (":" in bind_address) for ip in ips):
        ips = (*ips, bind_address)
    return Config(
        node_name=beside.node_name,
        node_ips=ips,
        detect_local_mode=mode,
        pod_interface=parse_detect_local(mode, pods["bridgeInterface"], pods["interfaceNamePrefix"]),
        # Other modes do not ask for them, and kube-proxy does not look whether they are right.
        cluster_cidrs=parse_cluster_cidrs("", (document["clusterCIDR"],)) if mode == "ClusterCIDR" else (),
        service_cidrs=beside.service_cidrs,
        nodeport_addresses=parse_nodeport_addresses("", (*document["nodePortAddresses"],)),
        masquerade_all=rules["masqueradeAll"],
        masquerade_bit=rules["masqueradeBit"],
        min_sync_period=_seconds(rules["minSyncPeriod"]),
        sync_period=_seconds(rules["syncPeriod"]),
    )


def _seconds(duration: str) -> float:
    found = durations.parse(duration) or 0
    return 0.0 if found < _NO_PAUSE else found / 1e9


def warnings_of(document: Document, name: Names, told: frozenset[str], *, of_kube_proxy: bool) -> Iterator[str]:
    """Yield what is to be said of a document that is right, but not of the fields that were ``told`` of before.

    ``of_kube_proxy`` says that a kube-proxy without a mode was meant, which would be in mode iptables.
    """
    mode = document["mode"]
    if mode in ("iptables", "ipvs"):
        yield f"{name('mode')}: knft is always in mode nftables; of mode {mode} it takes the periods and masquerading"
    if not document["nodePortAddresses"] and (mode in ("iptables", "ipvs") or (of_kube_proxy and not mode)):
        yield (
            f"{name('nodePortAddresses')}: nothing is said, so that NodePorts answer on the node's primary addresses, "
            f"as in mode nftables; in mode {mode or 'iptables'} they would on all local ones"
        )
    yield from _open_family(document, name)
    yield from (f"{name(path)}: {words}" for path, words in _without_meaning(document) if path not in told)
    for gate, on in document["featureGates"].items():
        known = GATES[gate]
        if on is not (known.here or False):
            yield f"{name('featureGates')}: {gate}={_shown(on)} changes nothing: {known.note}"


def _open_family(document: Document, name: Names) -> Iterator[str]:
    """Say so where CIDRs of one family leave the other open, as in kube-proxy (I.5)."""
    words = parse_nodeport_addresses("", (*document["nodePortAddresses"],))
    families = [family for family in Family if not addresses.networks_of_family(words, family)]
    if len(families) == 1 and PRIMARY not in words and ALL not in words:
        yield (
            f"{name('nodePortAddresses')}: no CIDR of {families[0].value} is there, so that its NodePorts answer on "
            "all local addresses, as in kube-proxy"
        )


def _without_meaning(document: Document) -> Iterator[tuple[str, str]]:
    mode = document["mode"]
    for path, row in FIELDS.items():
        value = get(document, path)
        if value == row.default or value in row.quiet:
            continue
        if row.verdict is Verdict.IDLE:
            yield path, f"{_shown(value)} means nothing here: {row.note}"
        elif row.modes and not _counts(path, mode):
            counts = section_of(mode, path.rpartition(".")[2])
            yield path, f"{_shown(value)} means nothing in mode {mode or 'iptables'}; {counts} counts"


def _counts(path: str, mode: str) -> bool:
    return path == section_of(mode, path.rpartition(".")[2])


def _shown(value: object) -> str:
    return sort_of(value) if isinstance(value, dict | list) else shown(value)
