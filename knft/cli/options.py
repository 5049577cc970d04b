"""Builds a Config from the flags of commands other than ``knft run``."""

import socket
from typing import TYPE_CHECKING, Any

from knft.config import (
    Config,
    parse_cluster_cidrs,
    parse_detect_local,
    parse_nodeport_addresses,
    parse_one_address_per_family,
    parse_service_cidrs,
)
from knft.errors import UsageError

if TYPE_CHECKING:
    from knft.configuration.settings import Settings


def config_from_options(options: dict[str, Any]) -> Config:
    """Return the Config of the node that --node names; raise UsageError naming the invalid flag."""
    return config_of_node(node_name_from_options(options), options)


def node_name_from_options(options: dict[str, Any]) -> str:
    """Return the name of the node; raise UsageError if it is missing or empty."""
    if options["node"] is None:
        msg = "--node is required with -f: give the node's name as in nodeName of EndpointSlices"
        raise UsageError(msg)
    node_name: str = options["node"].strip().lower()
    if not node_name:
        msg = "--node: the name is empty; give the node's name as in nodeName of EndpointSlices"
        raise UsageError(msg)
    return node_name


def config_of_node(node_name: str, options: dict[str, Any]) -> Config:
    """Return the Config of a node; raise UsageError naming the invalid flag, or ConfigurationError."""
    if options.get("config") is not None:
        from knft.configuration.file_content import read_configuration  # noqa: PLC0415 - most commands need no file

        return settings_of_file(read_configuration(options["config"]), options).config
    return Config(
        node_name=node_name,
        node_ips=parse_one_address_per_family("--node-ip", options["node_ip"]),
        detect_local_mode=options["detect_local_mode"],
        pod_interface=parse_detect_local(
            options["detect_local_mode"], options["pod_bridge_interface"], options["pod_interface_name_prefix"]
        ),
        cluster_cidrs=parse_cluster_cidrs("--cluster-cidr", options["cluster_cidr"]),
        service_cidrs=parse_service_cidrs("--service-cidr", options["service_cidr"]),
        nodeport_addresses=parse_nodeport_addresses("--nodeport-addresses", options["nodeport_addresses"]),
        masquerade_all=options["masquerade_all"],
        masquerade_bit=options["masquerade_bit"],
        drop_invalid_packets=options["drop_invalid_packets"],
    )


def settings_of_file(content: bytes, options: dict[str, Any]) -> "Settings":
    """Return the settings of the file of --config and the flags that apply beside it; raise ConfigurationError."""
    from knft.configuration.load import load_settings  # noqa: PLC0415 - most commands need no file

    flags = {
        "--node": options["node"],
        "--node-ip": options["node_ip"],
        "--service-cidr": options["service_cidr"],
        "--drop-invalid-packets": options["drop_invalid_packets"],
    }
    given = {flag: value for flag, value in flags.items() if value}
    return load_settings({"--config": options["config"], **given}, socket.gethostname(), lambda _: content)
