"""Flags without a configuration file: empty values, flags without effect, and values that a file cannot hold."""

import re

import pytest

from knft.configuration.settings import ClientSettings
from knft.errors import ConfigurationError
from tests.support.loaded_settings import PRIMARY_FLAG, config_text, load


def test_zero_rates_and_empty_mode_mean_the_defaults() -> None:
    """As in kube-proxy: the client of the API server has default rates, and an empty mode is unset."""
    settings = load("--kube-api-qps=0", "--kube-api-burst=0", "--detect-local-mode=")
    assert settings.client == ClientSettings()
    assert settings.config.detect_local_mode == "ClusterCIDR"
    assert load("--kube-api-qps=-1").client.qps == -1


def test_disabled_bind_address_gives_a_warning_if_a_file_is_written() -> None:
    flags = ("--healthz-bind-address=", "--metrics-bind-address=127.0.0.1:1", PRIMARY_FLAG)
    assert load(*flags).warnings == ()
    assert load(*flags, "--write-config-to=x").warnings == (
        "--healthz-bind-address: the written file enables the server, since a file cannot disable it",
    )


def test_api_server_flags_give_a_warning_with_manifests() -> None:
    flags = ("--manifests=.", "--node=node-1", "--kubeconfig=k", "--master=https://192.0.2.1")
    message = "it has no effect with --manifests"
    assert load(*flags).warnings == (f"--kubeconfig: {message}", f"--master: {message}")
    assert [warning for warning in load(*flags, text=config_text()).warnings if message in warning] == [
        f"--master: {message}"
    ]


@pytest.mark.parametrize(
    ("text", "family"),
    [
        ("192.0.2.0/24", "IPv6"),
        ("fd00::/8,fd01::/16", "IPv4"),
        ("192.0.2.0/24,fd00::/8", ""),
        ("192.0.2.0/24,primary", ""),
        ("192.0.2.0/24,all", ""),
    ],
)
def test_nodeport_cidrs_of_one_family_give_a_warning_about_the_other(text: str, family: str) -> None:
    template = "--nodeport-addresses: no CIDR of {} is set, so its NodePorts are served on all local addresses, {}"
    expected = (template.format(family, "as in kube-proxy"),) if family else ()
    assert load("--proxy-mode=nftables", f"--nodeport-addresses={text}").warnings == expected


def test_limits_of_the_runner() -> None:
    """The defaults are those of kube-proxy since 1.35."""
    assert (load().config.max_sync_period, load().config.sync_burst) == (3600, 1)
    config = load("--max-sync-period=30s", "--sync-burst=2").config
    assert (config.max_sync_period, config.sync_burst) == (30, 2)


def test_connections_are_counted_only_if_asked_for() -> None:
    assert not load().config.service_counters
    assert load("--service-counters").config.service_counters


def test_invalid_packets_are_dropped_only_if_a_flag_asks_for_it() -> None:
    assert not load().config.drop_invalid_packets
    assert load("--drop-invalid-packets").config.drop_invalid_packets


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0", "--max-sync-period: it must be more than 0"),
        ("3", "--max-sync-period: '3' is not a duration"),
        ("9000h", "--max-sync-period: '9000h' is longer than a year"),
    ],
)
def test_invalid_longest_interval_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        load(f"--max-sync-period={text}")
