"""Flags without a file: empty ones, those that nothing comes of, and what a file could not say."""

import pytest

from knft.configuration.settings import ClientSettings
from tests.configuration.loading import PRIMARY, config, load


def test_an_empty_flag_is_none_where_kube_proxy_takes_it_so() -> None:
    """Its client of the API server fills in the rates, and its defaults the mode."""
    settings = load("--kube-api-qps=0", "--kube-api-burst=0", "--detect-local-mode=")
    assert settings.client == ClientSettings()
    assert settings.config.detect_local_mode == "ClusterCIDR"
    assert load("--kube-api-qps=-1").client.qps == -1


def test_nowhere_cannot_be_written_and_that_is_told() -> None:
    flags = ("--healthz-bind-address=", "--metrics-bind-address=127.0.0.1:1", PRIMARY)
    assert load(*flags).warnings == ()
    assert load(*flags, "--write-config-to=x").warnings == (
        "--healthz-bind-address: a file cannot disable it: the written file means the default",
    )


def test_an_api_server_means_nothing_beside_manifests() -> None:
    flags = ("--manifests=.", "--node=node-1", "--kubeconfig=k", "--master=https://192.0.2.1")
    said = "it has no effect with --manifests"
    assert load(*flags).warnings == (f"--kubeconfig: {said}", f"--master: {said}")
    assert [warning for warning in load(*flags, text=config()).warnings if said in warning] == [f"--master: {said}"]


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
def test_cidrs_of_one_family_leave_the_other_open_and_that_is_told(text: str, family: str) -> None:
    said = "--nodeport-addresses: no CIDR of {} is set, so its NodePorts are served on all local addresses, {}"
    wanted = (said.format(family, "as in kube-proxy"),) if family else ()
    assert load("--proxy-mode=nftables", f"--nodeport-addresses={text}").warnings == wanted
