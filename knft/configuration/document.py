"""A KubeProxyConfiguration as nested dictionaries with all fields and kube-proxy's defaults."""

from collections.abc import Callable
from typing import Any

from knft.configuration.options import Kind, Option
from knft.configuration.table import FIELDS, options_of_kind
from knft.durations import format_duration, parse_duration
from knft.families import Family
from knft.model import addresses

API_VERSION, KIND = "kubeproxy.config.k8s.io/v1alpha1", "KubeProxyConfiguration"

HEALTHZ_PORT, METRICS_PORT = 10256, 10249

Document = dict[str, Any]


def get_field(document: Document, path: str) -> Any:  # noqa: ANN401 - a value of the field's kind
    """Return a field's value, or None if the document does not have it."""
    value: Any = document
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def set_field(document: Document, path: str, value: Any) -> None:  # noqa: ANN401
    """Set a field; create missing sections."""
    *sections, name = path.split(".")
    for section in sections:
        document = document.setdefault(section, {})
    document[name] = value


def default_document() -> Document:
    """Return the document with only default values."""
    return with_defaults({})


def with_defaults(given: Document) -> Document:
    """Return the known fields of a document that matches the schema, with defaults for unset ones."""
    document: Document = {"apiVersion": API_VERSION, "kind": KIND}
    for path, option in FIELDS.items():
        value = get_field(given, path)
        set_field(document, path, option.default if _is_unset(option, value) else _CONVERTERS[option.kind](value))
    is_ipv6 = address_family(document["bindAddress"]) is Family.IPV6
    for path, ipv4, ipv6, port in (
        ("healthzBindAddress", "0.0.0.0", "[::]", HEALTHZ_PORT),  # noqa: S104 - kube-proxy's default
        ("metricsBindAddress", "127.0.0.1", "[::1]", METRICS_PORT),
    ):
        found = get_field(given, path)
        set_field(document, path, with_port(found, port) if found else f"{ipv6 if is_ipv6 else ipv4}:{port}")
    return document


def _is_unset(option: Option, value: object) -> bool:
    """Return whether kube-proxy uses the default: without a pointer Go cannot tell zero from an unset field."""
    if value is None or option.is_zero_valid:
        return value is None
    return not value or (option.kind is Kind.DURATION and isinstance(value, str) and parse_duration(value) == 0)


def _vmodule_item(item: Document) -> Document:
    return {"filePattern": item.get("filePattern") or "", "verbosity": int(item.get("verbosity") or 0)}


_CONVERTERS: dict[Kind, Callable[[Any], Any]] = {
    Kind.BOOL: bool,
    Kind.INTEGER: int,
    Kind.FLOAT: float,
    Kind.STRING: str,
    Kind.DURATION: lambda value: format_duration(value) if isinstance(value, int) else canonical_duration(value),
    Kind.LIST: list,
    Kind.FEATURE_GATES: lambda value: {name: bool(on) for name, on in value.items()},
    Kind.VMODULE: lambda value: [_vmodule_item(item) for item in value if item],
}
"""Convert values of the YAML reader, which remember their spelling, to plain values."""


def canonical_duration(duration: str) -> str:
    """Return a duration in Go's format; an invalid one stays unchanged and is reported by the checks."""
    found = parse_duration(duration)
    return duration if found is None else format_duration(found)


def normalize_durations(document: Document) -> None:
    """Write all durations in Go's format."""
    for option in options_of_kind(Kind.DURATION):
        set_field(document, option.field, canonical_duration(get_field(document, option.field)))


def address_family(address: str) -> Family | None:
    """Return the family of an address, or None if it is invalid."""
    parsed = addresses.parse_address(address)
    return None if parsed is None else parsed[0]


def with_port(address: str, port: int) -> str:
    """Return ``IP:port`` for an IP without port, and other texts unchanged."""
    parsed = None if split_host_port(address) else addresses.parse_address(address)
    if parsed is None:
        return address
    return join_host_port(parsed[1], port)


def join_host_port(host: str, port: int) -> str:
    """Return ``host:port``, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_host_port(text: str) -> tuple[str, str] | None:
    """Return host and port of ``host:port``, or None if Go's SplitHostPort fails."""
    if text.startswith("["):
        host, bracket, port = text[1:].partition("]")
        well_formed = bracket and port.startswith(":")
        port = port[1:]
    else:
        host, colon, port = text.rpartition(":")
        well_formed = colon and ":" not in host
    return (host, port) if well_formed and not set("[]:") & set(port) and not set("[]") & set(host) else None
