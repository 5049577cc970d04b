"""From the words of the command line, and the files it names, to what the legacy modes are a function of."""

import re
from codecs import BOM_UTF8
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from knft.config import Config, parse_duration, parse_networks
from knft.errors import SourceError, UsageError
from knft.model import addresses
from knft.model.names import Family, NamespacedName
from knft.source.files import shown_path
from knft_compat import iptables, ipvs
from knft_compat.cluster import LOOPBACK_NETWORKS, LocalTraffic

Found = TypeVar("Found")

_EVERYWHERE = ("0.0.0.0/0", "::/0")
_LONGEST_INTERFACE = 15


def iptables_settings(options: dict[str, Any]) -> iptables.Settings:
    """Return the settings of the iptables mode; raise UsageError or SourceError, naming flag or file."""
    existing = _existing(options["existing"], options["family"])
    changed = frozenset(_service("--changed", text) for text in options["changed"])
    return iptables.Settings(
        localhost_node_ports=options["iptables_localhost_nodeports"],
        has_nfacct=options["nfacct"],
        conntrack_is_liberal=options["conntrack_tcp_be_liberal"],
        existing=existing,
        changed=changed or None,
    )


def _existing(path: str | None, family: str | None) -> iptables.Existing | None:
    if path is None:
        return None
    existing = iptables.read_existing(_named("--existing", path), _read("--existing", path))
    families = {item.value.lower(): item for item in existing.families}
    if family is not None and families and family not in families:
        msg = f"{_named('--existing', path)} has no rules of --family {family}, but those of {' and '.join(families)}"
        raise UsageError(msg)
    return existing


def ipvs_settings(options: dict[str, Any]) -> ipvs.Settings:
    """Return the settings of the IPVS mode; raise UsageError or SourceError, naming flag or file."""
    found = _read_by(ipvs.read_servers, "--existing-ipvs", options["existing_ipvs"])
    return ipvs.Settings(
        vintage=_vintage(options["vintage"]),
        scheduler=_scheduler(options["ipvs_scheduler"]),
        excluded=parse_networks("--ipvs-exclude-cidrs", options["ipvs_exclude_cidrs"]),
        strict_arp=options["ipvs_strict_arp"],
        timeouts=ipvs.Timeouts(*(_seconds(f"--ipvs-{name}-timeout", options) for name in ("tcp", "tcpfin", "udp"))),
        kernel=_kernel(options["kernel"]),
        servers=None if found is None else found.servers,
        bound=_read_by(ipvs.read_addresses, "--existing-addresses", options["existing_addresses"]),
        remarks=() if found is None else found.remarks,
    )


def local_traffic(config: Config, pod_cidr: str | None) -> LocalTraffic | None:
    """Return how pods are told from others, or None where they cannot be (I.6)."""
    if config.detects_by_interface:
        match = ("-i", re.sub(r"\*$", "+", config.pod_interface))
        if len(match[1]) > _LONGEST_INTERFACE:
            most = _LONGEST_INTERFACE - 1
            msg = f"--pod-interface-name-prefix: iptables takes {most} characters, not {config.pod_interface[:-1]!r}"
            raise UsageError(msg)
    elif pod_cidr is not None:
        match = ("-s", pod_cidr)
    else:
        return None
    return LocalTraffic(match, ("!", *match))


def nodeport_cidrs(family: Family, texts: tuple[str, ...], node_ip: str | None) -> tuple[str, ...]:
    """Return the networks of ``family`` whose addresses accept NodePorts, () where all do (I.5); raise UsageError."""
    primary = () if node_ip is None or addresses.is_loopback(node_ip) else (addresses.as_network(node_ip),)
    words = {"primary": primary, "localhost": tuple(LOOPBACK_NETWORKS.values()), "all": _EVERYWHERE}
    flag = "--nodeport-addresses"
    parts = [part.strip() for text in texts for part in text.split(",") if part.strip()]
    found = [cidr for part in parts for cidr in (words[part] if part in words else parse_networks(flag, (part,)))]
    cidrs = addresses.networks_of_family(found, family)
    return () if any(addresses.is_zero_network(cidr) for cidr in cidrs) else cidrs


def host_addresses(family: Family, texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the addresses of ``family`` among a node's own, sorted; loopback ones do not count."""
    found = set(addresses.of_family(texts, family))
    return tuple(sorted(address for address in found if not addresses.is_loopback(address)))


def _read_by(reader: Callable[[str, str], Found], flag: str, path: str | None) -> Found | None:
    return None if path is None else reader(_named(flag, path), _read(flag, path))


def _named(flag: str, path: str) -> str:
    return f"{flag}: {shown_path(path)}"


def _read(flag: str, path: str) -> str:
    if not path:
        msg = f"{flag}: the name of the file is empty"
        raise UsageError(msg)
    try:
        content = Path(path).read_bytes()
        return content.removeprefix(BOM_UTF8).decode()
    except OSError as error:
        msg = f"{_named(flag, path)}: {error.strerror}"
        raise SourceError(msg) from error
    except UnicodeDecodeError as error:
        msg = f"{_named(flag, path)}: it is not text (byte {error.start + 1} is no UTF-8)"
        raise SourceError(msg) from error


def _service(flag: str, text: str) -> NamespacedName:
    found = re.fullmatch(r"([a-z0-9.-]+)/([a-z0-9.-]+)", text.strip())
    if found is None:
        msg = f"{flag}: {text!r} is not a Service as in shop/frontend: a namespace, a slash and a name"
        raise UsageError(msg)
    return NamespacedName(found[1], found[2])


def _vintage(text: str) -> ipvs.Vintage:
    try:
        return ipvs.Vintage(text)
    except ValueError as error:
        msg = f"--vintage: there is no {text!r}; there are {', '.join(item.value for item in ipvs.Vintage)}"
        raise UsageError(msg) from error


def _scheduler(text: str) -> str:
    # It goes into commands: what no scheduler can be called is refused. Which there are, only the kernel knows.
    if not re.fullmatch(r"[a-z][a-z0-9_-]{0,14}", text):
        msg = f"--ipvs-scheduler: {text!r} is not the name of a scheduler, such as rr, lc or mh"
        raise UsageError(msg)
    return text


def _seconds(flag: str, options: dict[str, Any]) -> int:
    return int(parse_duration(flag, options[flag.removeprefix("--").replace("-", "_")]))


def _kernel(text: str) -> tuple[int, int]:
    found = re.match(r"([0-9]{1,3})\.([0-9]{1,3})(?![0-9])", text)
    if found is None:
        msg = f"--kernel: {text!r} is not a version such as 6.1"
        raise UsageError(msg)
    return int(found[1]), int(found[2])
